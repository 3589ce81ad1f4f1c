"""Pure renderings: terminal and JSON."""
