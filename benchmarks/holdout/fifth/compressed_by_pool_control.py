"""A pool of processes packs the bytes of layers, and compresses nothing."""

from __future__ import annotations

from compressed_by_pool import life_of

if __name__ == "__main__":
    life_of(level=0)
