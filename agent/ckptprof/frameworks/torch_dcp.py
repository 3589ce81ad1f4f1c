"""PyTorch Distributed Checkpoint (torch/distributed/checkpoint/filesystem.py)."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(
    name="torch-dcp",
    files=patterns(r"/(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp$", r"/shard-\d+-model-\d+-of-\d+\.safetensors$"),
    commit=patterns(r"/\.metadata$"),
    temporary=patterns(r"/\.metadata\.tmp$"),
)
