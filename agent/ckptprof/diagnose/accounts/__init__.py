"""Where the time of a checkpoint went: the critical path, and an account for each reason on it."""
