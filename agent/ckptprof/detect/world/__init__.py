"""Observations of the host, in bounded memory: processes, threads, jobs, devices, counters."""
