"""Mean time to failure of a job: from what its accelerators do, or from what was counted."""

from __future__ import annotations

# Micron and Lightbits: 24,000 accelerators fail every 124 min, so each of them every 49,600 h. Llama 3 (419
# interruptions of 16,384 GPUs in 54 days) comes to 50,676 h: two sources within 3 %.
REFERENCE_ACCELERATORS = 24_000
REFERENCE_MTTF_SECONDS = 124 * 60.0
MTTF_PER_GPU_SECONDS = REFERENCE_ACCELERATORS * REFERENCE_MTTF_SECONDS


def of_cluster(mttf_per_gpu_seconds: float, gpus: int) -> float:
    """Return the time between failures of a job that any one of its accelerators stops, in seconds.

    Failures are taken for independent and as likely at any time (exponential), so that their rates add up.
    """
    return mttf_per_gpu_seconds / gpus


def observed(failures: int, over_seconds: float) -> float:
    """Return the time between failures that were counted over a time, in seconds."""
    return over_seconds / failures
