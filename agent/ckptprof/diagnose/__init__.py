"""Pure: a checkpoint and what was measured around it to a verdict and its cost (`judging`)."""
