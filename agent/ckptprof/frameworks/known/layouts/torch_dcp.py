"""PyTorch Distributed Checkpoint (torch/distributed/checkpoint/filesystem.py, hf_storage.py, _hf_utils.py).

Every file is synced; .metadata is renamed into place last. The Hugging Face variant writes sharded/shard-00001-model-*
(ranks counted from one) and then joins them into model-0000i-of-0000n.safetensors beside that folder.
"""

from ckptprof.frameworks.examples import SAFETENSORS, Save, Write, dcp, each
from ckptprof.frameworks.knowledge import Async, Code, Durability, Framework, Layer, companion, mark, temporary

FRAMEWORK = Framework(
    name="torch-dcp",
    layer=Layer.LIBRARY,
    libraries=("torch",),
    files=(
        mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp"),
        mark(r"shard-(?P<rank1>\d+)-model-\d+-of-\d+\.safetensors", r"(?P<below>(?:/sharded)?)$"),
    ),
    commit=(mark(r"\.metadata"), mark(r"__\d+\.metadata")),
    temporary=(temporary(".tmp", r"(?<=\.metadata)\.tmp$"),),
    durability=Durability.FSYNC,
    asynchronous=(Async.THREAD, Async.CHILD),
    code=Code(saves=(r"torch/distributed/checkpoint/.*",), background=(r"torch/distributed/checkpoint/_async_\w+",)),
    companions=(companion(r"__\d+_\d+\.distcp$", ".metadata"),),
    sharded="sharded",
    consolidated="consolidated",
    names="`__R_N.distcp`; `sharded/shard-R-model-*.safetensors`",
    completed_by="`.metadata`",
    proven_by=("examples/train_torch.py", "tests/e2e/jobs/dcp.py"),
    saves=(
        Save(dcp("step-{step}"), path="step-{step}", ranks=2),
        Save(
            each(
                Write(
                    "step_{step}/sharded/shard-{rank1:05}-model-00001-of-00001.safetensors",
                    30,
                    magic=SAFETENSORS,
                    held_s=0.02,
                )
            ),
            path="step_{step}",
            ranks=2,
            variant="hf",
        ),
    ),
)
