"""MosaicML Composer (composer/callbacks/checkpoint_saver.py): ep0-ba100-rank0.pt, or ep0-ba100/ of PyTorch DCP."""

from ckptprof.frameworks.examples import Save, each, tensor
from ckptprof.frameworks.knowledge import Framework, Layer, directory, mark

FRAMEWORK = Framework(
    name="composer",
    layer=Layer.TRAINER,
    libraries=("torch",),
    files=(
        mark(r"ep\d+-ba(?P<step>\d{1,12})(?:-rank(?P<rank>\d+))?\.pt"),
        mark(r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp", r"/ep\d+-ba(?P<step>\d{1,12})$"),
    ),
    directories=(directory(r"ep\d+-ba(?P<step>\d{1,12})"),),
    launchers=("composer",),
    names="`epE-baN-rankR.pt`, `epE-baN/` as PyTorch DCP",
    saves=(Save(each(tensor("ep0-ba{step}-rank{rank}.pt")), ranks=2),),
)
