"""An event described as a checkpoint: stall, layout, course, completeness, durability, source."""
