"""What runs in the recorder's process: frames in, checkpoints, timelines and metrics out."""
