"""What became of the saves of jobs."""
