"""The answers of `ckptprof fleet` for a terminal."""
