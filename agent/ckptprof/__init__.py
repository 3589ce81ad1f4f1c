"""ckptprof: the flight recorder of AI checkpoints."""

__version__ = "0.2.0.dev0"
