"""Who moved what of which file, when and how much of it."""
