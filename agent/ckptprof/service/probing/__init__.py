"""`ckptprof ceiling`: a short, bounded probe of a directory that leaves no files."""
