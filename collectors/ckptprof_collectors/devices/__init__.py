"""Block devices, their limits, and the host's memory."""
