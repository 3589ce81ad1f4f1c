"""Causes in the job itself: gathering, staging, serializing, one writer for all, what it did before."""
