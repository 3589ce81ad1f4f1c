"""ckptprof: the flight recorder of AI checkpoints."""

__version__ = "0.1.0.dev0"
