"""Exported file formats."""
