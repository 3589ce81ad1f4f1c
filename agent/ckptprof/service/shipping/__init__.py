"""Takes what the agent stores to a server: a process of its own, which reads the agent's database and nothing else."""
