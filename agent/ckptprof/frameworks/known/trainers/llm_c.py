"""llm.c (train_gpt2.cu): rank 0 writes model_STEP.bin, every rank state_STEP_RANK.bin; then comes DONE_STEP, empty."""

from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="llm.c",
    layer=Layer.TRAINER,
    files=(mark(r"model_(?P<step>\d{8})\.bin"), mark(r"state_(?P<step>\d{8})_(?P<rank>\d{5})\.bin")),
    commit=(mark(r"DONE_\d{8}"),),
)
