"""Ships what the agent stores to a fleet: a process of its own, which reads the agent's database and nothing else."""
