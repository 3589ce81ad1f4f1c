"""The noun Transfer, and what it answers however it was seen."""
