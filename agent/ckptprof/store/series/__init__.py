"""What counters were over time: the codec of blocks, strips of points in the tables, and the reading of them."""
