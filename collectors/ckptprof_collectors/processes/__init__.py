"""Processes, their threads and open files, by /proc/PID."""
