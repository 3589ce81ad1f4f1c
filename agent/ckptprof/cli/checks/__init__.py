"""What `ckptprof doctor` looks at."""
