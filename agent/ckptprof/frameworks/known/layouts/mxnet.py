"""Apache MXNet (mxnet/module/module.py): PREFIX-0012.params and .states, the epoch with four digits."""

from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="mxnet",
    layer=Layer.LIBRARY,
    files=(mark(r".+-(?P<step>\d{4})\.(?:params|states)"),),
)
