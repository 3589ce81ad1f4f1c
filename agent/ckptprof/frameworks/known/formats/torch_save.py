"""torch.save (torch/serialization.py): any name, known by its ending and first bytes: zip, or pickle of old.

In place, no fsync, no marker. `.pth.tar` is what the examples of PyTorch and timm call it, `.tar` what its
tutorial on general checkpoints does; they are no tar, and another `.tar` is one unless its first bytes tell.
"""

import re

from ckptprof.frameworks.examples import GZIP, Save, Write, each, tensor
from ckptprof.frameworks.knowledge import COMPRESSED, PACKED, Code, Framework, Layer, mark

FRAMEWORK = Framework(
    name="torch.save",
    layer=Layer.FORMAT,
    libraries=("torch",),
    weight=0.4,
    formats=frozenset(("torch-zip", "pickle", COMPRESSED)),
    files=(mark(r".*\.(?:pt|pth|ckpt)" + PACKED), mark(r".*\.tar"), mark(r"pytorch_model.*\.bin")),
    code=Code(saves=(r"torch/serialization",), writes=(r"torch/serialization",)),
    doubtful=re.compile(r"(?<!\.pth)(?<!\.pt)\.tar$"),
    names=(
        "`.pt`, `.pth`, `.ckpt`, also with `.gz`, `.zst` and the like; `.pth.tar`, `.tar` that is none, "
        "`pytorch_model*.bin`"
    ),
    proven_by=("examples/train_torch.py", "tests/e2e/jobs/torch_save.py"),
    saves=(
        Save((tensor("ckpt_{step}.pt"),), path="ckpt_{step}.pt"),
        Save(each(tensor("model_step_{step}_rank_{rank}.pt")), ranks=2, variant="ranks"),
        Save(
            (Write("model_{step}.pt", 40, magic=b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."),),
            path="model_{step}.pt",
            variant="legacy",
        ),
        Save((Write("ckpt_{step}.pt.gz", 40, magic=GZIP),), path="ckpt_{step}.pt.gz", variant="compressed"),
    ),
)
