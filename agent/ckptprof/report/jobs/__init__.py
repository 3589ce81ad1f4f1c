"""What a job costs beyond its checkpoints, and what becomes of these."""
