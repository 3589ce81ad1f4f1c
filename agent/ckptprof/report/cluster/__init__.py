"""The checkpoints of several nodes as text and as JSON documents."""
