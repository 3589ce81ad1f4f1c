"""Libraries that a process may have loaded, as the collectors name them (RUNTIME_MARKS in processes/process.py).

The collectors know nothing of this package: a new one is named there, too, and a test holds both lists together.
"""

from __future__ import annotations

TRAINING_RUNTIMES = frozenset(("torch", "jax", "tensorflow", "paddle", "mindspore", "mxnet"))
NUMERIC_RUNTIMES = frozenset(("numpy", "safetensors"))
GPU_RUNTIMES = frozenset(("cuda", "hip", "nccl", "gpu"))
