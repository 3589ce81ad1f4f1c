"""Causes between the job and its storage: page cache, flushes, mapped files."""
