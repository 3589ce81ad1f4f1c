"""safetensors (safetensors/src/tensor.rs): written as .tmpXXXXXX beside the target, then renamed; read by mmap."""

from ckptprof.frameworks.examples import Save, safetensors
from ckptprof.frameworks.knowledge import Code, Durability, Framework, Layer, mark, temporary

FRAMEWORK = Framework(
    name="safetensors",
    layer=Layer.FORMAT,
    weight=0.45,
    formats=frozenset(("safetensors",)),
    files=(mark(r".*\.safetensors"),),
    temporary=(temporary(".tmp", r"^\.tmp[A-Za-z0-9]{6}$"),),
    durability=Durability.RENAME,
    code=Code(saves=(r"safetensors/\w+",), writes=(r"safetensors/\w+",)),
    names="`.safetensors` (`.tmpXXXXXX` before)",
    completed_by="rename",
    proven_by=("examples/train_torch.py", "tests/e2e/jobs/torch_save.py"),
    saves=(
        Save((safetensors("step_{step}/model.safetensors"),), path="step_{step}/model.safetensors", mapped=True),
        Save(
            tuple(safetensors(f"step_{{step}}/model-0000{n}-of-00002.safetensors") for n in (1, 2)),
            path="step_{step}",
            mapped=True,
            variant="shards",
        ),
    ),
)
