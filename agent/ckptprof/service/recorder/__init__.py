"""The recorder's process: turns frames into checkpoints, timelines and metrics."""
