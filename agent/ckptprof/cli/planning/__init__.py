"""What `ckptprof plan` is told on its command line, and the units that it reads."""
