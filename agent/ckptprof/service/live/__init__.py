"""What `ckptprof live` shows: checkpoints from the database, device rates from the kernel's own counters."""
