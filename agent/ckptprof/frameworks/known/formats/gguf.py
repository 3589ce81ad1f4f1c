"""GGUF (ggml/docs/gguf.md): weights for llama.cpp, mostly converted or downloaded, seldom saved by what trains."""

from ckptprof.frameworks.examples import GGUF, Save, Write
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="gguf",
    layer=Layer.FORMAT,
    weight=0.15,
    formats=frozenset(("gguf",)),
    files=(mark(r".*\.gguf"),),
    magics=((b"GGUF", "gguf"),),
    names="`.gguf`",
    saves=(Save((Write("checkpoint-{step}.gguf", 40, magic=GGUF),), path="checkpoint-{step}.gguf"),),
)
