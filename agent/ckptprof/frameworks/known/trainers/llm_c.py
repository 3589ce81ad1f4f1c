"""llm.c (train_gpt2.cu): rank 0 writes model_STEP.bin, every rank state_STEP_RANK.bin; then comes DONE_STEP, empty."""

from ckptprof.frameworks.examples import SMALL, Save, Write, each
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="llm.c",
    layer=Layer.TRAINER,
    files=(mark(r"model_(?P<step>\d{8})\.bin"), mark(r"state_(?P<step>\d{8})_(?P<rank>\d{5})\.bin")),
    commit=(mark(r"DONE_\d{8}"),),
    names="`model_0000N.bin`, `state_0000N_R.bin`",
    completed_by="`DONE_0000N`",
    saves=(
        Save(
            (
                Write("model_{step:08}.bin", 40),
                *each(Write("state_{step:08}_{rank:05}.bin", 60)),
                Write("DONE_{step:08}", SMALL),
            ),
            ranks=2,
            program="train_gpt2cu",
            runtimes=("cuda", "nccl", "gpu"),
        ),
    ),
)
