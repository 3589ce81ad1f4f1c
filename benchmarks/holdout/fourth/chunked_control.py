"""The chunks of all arrays are members of one zip."""

from __future__ import annotations

from chunked import life_of

if __name__ == "__main__":
    life_of(scattered=False)
