"""numpy.save, savez and tofile: the weakest of marks, since data sets bear them too."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(name="numpy", files=patterns(r"\.np[yz]$"))
