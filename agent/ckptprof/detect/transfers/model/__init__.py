"""The class Transfer, and its parts."""
