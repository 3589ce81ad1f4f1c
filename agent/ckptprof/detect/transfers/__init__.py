"""Transfers: which process transferred how many bytes of which file, and when."""
