"""Whose checkpoint it is: the most particular name decides, not the biggest file, and bytes may belie a name."""

from __future__ import annotations

import pytest

from ckptprof.frameworks.file_names import identify_framework
from ckptprof.frameworks.framework_table import evidence_weight

ZIP = b"PK\x03\x04" + bytes(12)
NUMPY = b"\x93NUMPY\x01\x00v\x00{'des"
GB = 1 << 30
C5, STEP = "/r/checkpoint-5", "/r/step-5"


@pytest.mark.parametrize(
    ("files", "program", "framework"),
    [
        (
            [(f"{C5}/pytorch_model_fsdp_0/__0_0.distcp", GB), (f"{C5}/trainer_state.json", 9)],
            "train.py",
            "transformers",
        ),
        (
            [("/r/out/pytorch_model_fsdp_0/__0_0.distcp", GB), ("/r/out/random_states_0.pkl", 9)],
            "train.py",
            "accelerate",
        ),
        ([("/r/out/model.safetensors", GB), ("/r/out/random_states_0.pkl", 9)], "train.py", "accelerate"),
        ([("/r/out/model.safetensors", GB)], "train.py", "safetensors"),
        ([(f"{STEP}/__0_0.distcp", GB)], "train.py", "torch-dcp"),
        ([(f"{STEP}/__0_0.distcp", GB)], "torchtitan.train", "torchtitan"),
        ([("/r/iter_0000500/__0_0.distcp", GB)], "train.py", "megatron"),
        ([(f"{C5}/model.safetensors", GB)], "axolotl.cli.train", "axolotl"),
        ([("/r/checkpoint_last.pt", GB)], "fairseq-train", "fairseq"),
        ([("/r/checkpoint_last.pt", GB)], "train.py", "torch.save"),
        (
            [("/r/epoch_0/model-00001-of-00002.safetensors", GB), ("/r/recipe_state/recipe_state.pt", 9)],
            "x",
            "torchtune",
        ),
        ([("/r/a.pt", 5), ("/r/b.safetensors", 6)], "train.py", "safetensors"),
        ([("/r/a.bin", GB)], "train.py", None),
        ([], "train.py", None),
    ],
)
def test_the_most_particular_name_decides(files: list[tuple[str, int]], program: str, framework: str | None) -> None:
    """A marker of a few bytes goes before gigabytes of a format that anybody uses."""
    assert identify_framework([(path, size, None) for path, size in files], [program]) == framework


@pytest.mark.parametrize(
    ("magic", "framework"), [(ZIP, "torch.save"), (NUMPY, None), (None, "torch.save"), (b"", "torch.save")]
)
def test_first_bytes_may_belie_a_name(magic: bytes | None, framework: str | None) -> None:
    """A .pt that holds an array of numpy is none of torch.save's; what could not be read belies nothing."""
    assert identify_framework([("/r/a.pt", 5, magic)]) == framework


def test_names_that_data_sets_bear_weigh_little() -> None:
    """A name alone makes no checkpoint of a pickle; Megatron's names are beyond doubt, and so are unknown ones."""
    assert (
        evidence_weight("pickle")
        < evidence_weight("torch.save")
        < evidence_weight("megatron")
        == evidence_weight("no-such-framework")
    )
