"""Pure: checkpoints as the databases of several nodes tell them, to the checkpoints of the jobs on all of them."""
