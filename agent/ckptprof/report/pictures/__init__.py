"""Drawings made of characters."""
