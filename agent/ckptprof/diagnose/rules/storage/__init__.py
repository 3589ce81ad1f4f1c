"""Causes in the storage: devices, networks, servers, small operations, many files, bytes moved twice."""
