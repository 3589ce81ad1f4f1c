"""torch.save: any name, known by its ending and its first bytes (zip or, in the legacy format, pickle)."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(name="torch.save", files=patterns(r"\.(?:pt|pth|ckpt)$", r"/pytorch_model[^/]*\.bin$"))
