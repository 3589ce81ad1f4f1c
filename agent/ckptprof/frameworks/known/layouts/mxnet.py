"""Apache MXNet (mxnet/module/module.py): PREFIX-0012.params and .states, the epoch with four digits."""

from ckptprof.frameworks.examples import Save, Write
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="mxnet",
    layer=Layer.LIBRARY,
    files=(mark(r".+-(?P<step>\d{4})\.(?:params|states)"),),
    names="`PREFIX-000N.params`, `.states`",
    saves=(
        Save((Write("resnet-{step:04}.params", 40), Write("resnet-{step:04}.states", 40)), runtimes=("mxnet", "numpy")),
    ),
)
