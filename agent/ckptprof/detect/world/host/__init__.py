"""The counters of the host: devices, networks, mounts and memory."""
