"""Pure: merges the checkpoints of several nodes' databases into checkpoints of jobs."""
