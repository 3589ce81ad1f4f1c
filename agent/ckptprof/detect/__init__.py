"""Pure: samples to intervals, bursts, checkpoints and patterns."""
