"""Sections of what `ckptprof show --all` tells of one checkpoint."""
