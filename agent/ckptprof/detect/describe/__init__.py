"""An event described as a checkpoint: stall, layout, progress, completeness, durability, source."""
