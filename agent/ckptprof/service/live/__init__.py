"""Data of `ckptprof live`: checkpoints from the database, device rates from the kernel's counters."""
