"""Words by which a remedy names a library."""

from __future__ import annotations

import re

from ckptprof.frameworks.framework_table import libraries_of

WORDS = {
    "accelerate": r"accelerate|fsdp_state_dict_type",
    "deepspeed": r"DeepSpeed|parallel_write",
    "jax": r"\bjax",
    "lightning": r"Lightning|ModelCheckpoint",
    "megatron": r"Megatron|--ckpt-",
    "numpy": r"\bnp\.|numpy",
    "orbax": r"Orbax|OCDBT",
    "safetensors": r"safetensors",
    "torch": r"\btorch|\bDCP\b|init_process_group",
    "transformers": r"transformers|save_pretrained",
    "none": r"vLLM|SGLang|[Kk]eras|tensorflow|paddle|mindspore",  # of no remedy
}


def foreign(remedy: str, framework: str | None) -> set[str]:
    """Return the libraries that a remedy names, and that a job does not have that saves by this framework."""
    return {name for name, words in WORDS.items() if re.search(words, remedy)} - libraries_of(framework)
