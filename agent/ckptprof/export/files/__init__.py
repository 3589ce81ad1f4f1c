"""What was recorded, as files that other programs read."""
