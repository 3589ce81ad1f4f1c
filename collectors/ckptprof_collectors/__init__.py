"""Readers of the machine: one file per kernel interface. Knows nothing of `ckptprof`."""
