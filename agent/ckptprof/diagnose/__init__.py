"""Pure: a checkpoint and its evidence to a verdict. Nothing is decided here yet."""
