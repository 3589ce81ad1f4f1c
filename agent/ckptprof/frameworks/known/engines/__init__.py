"""Libraries that write whole checkpoints, called by what trains."""
