"""Transfers grouped into events, and the signals for and against calling one a checkpoint."""
