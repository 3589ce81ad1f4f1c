"""Frameworks that train: they decide when and where a checkpoint is written."""
