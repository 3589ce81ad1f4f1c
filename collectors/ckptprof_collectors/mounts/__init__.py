"""Mounts, their failure domains, and the counters of remote clients."""
