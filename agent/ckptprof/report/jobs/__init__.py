"""What a job costs beyond its checkpoints."""
