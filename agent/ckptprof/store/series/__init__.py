"""Counters over time: the codec of blocks, strips of points in the tables, and their reader."""
