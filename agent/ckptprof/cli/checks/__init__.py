"""The checks of `ckptprof doctor`."""
