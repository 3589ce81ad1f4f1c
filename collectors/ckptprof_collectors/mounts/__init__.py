"""What is mounted where, and which mounts hang together."""
