"""Code shared by several commands, except options."""
