"""What was observed, in bounded memory: processes, threads, jobs, devices, counters."""
