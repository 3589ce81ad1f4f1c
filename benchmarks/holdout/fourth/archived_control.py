"""A folder is written aside, and `tar` packs it as it is."""

from __future__ import annotations

from archived import life_of

if __name__ == "__main__":
    life_of(compressed=False)
