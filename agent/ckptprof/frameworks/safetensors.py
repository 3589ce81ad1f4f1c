"""safetensors (safetensors/src/tensor.rs): written as .tmpXXXXXX beside the target, then renamed."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(
    name="safetensors",
    files=patterns(r"\.safetensors$"),
    temporary=patterns(r"/\.tmp[A-Za-z0-9]{6}$"),
)
