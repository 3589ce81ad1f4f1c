"""What an agent is measured beside, for benchmarks/guest.py and others: jobs, crowds, and the work of every day."""
