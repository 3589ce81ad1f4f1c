"""Knowledge as data: how each framework names, writes and commits its checkpoints."""
