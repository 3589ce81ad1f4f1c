"""Two ranks save their shards as npz, compressed, with the CPUs of the machine."""

from __future__ import annotations

from quota import life_of

if __name__ == "__main__":
    life_of(limited=False)
