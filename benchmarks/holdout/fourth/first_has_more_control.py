"""Three ranks save their shards, of one size."""

from __future__ import annotations

from first_has_more import life_of

if __name__ == "__main__":
    life_of(uneven=False)
