"""The time of a checkpoint: its critical path, divided into an account for each cause."""
