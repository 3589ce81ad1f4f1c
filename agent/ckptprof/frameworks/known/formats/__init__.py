"""Formats of files, which anybody writes."""
