"""What /proc/PID tells of processes, their threads, and the files that they have open."""
