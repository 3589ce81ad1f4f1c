"""Hugging Face Trainer (transformers/trainer.py, trainer_utils.py): checkpoint-STEP/, trainer_state.json last.

Rank 0 writes all but rng_state_RANK.pth; with FSDP or DeepSpeed their files are in the same folder. Older versions
wrote tmp-checkpoint-STEP and renamed it. Then old checkpoints are deleted, while training waits.
"""

from ckptprof.frameworks.examples import SMALL, TORCH_ZIP, Save, Write, dcp, each, safetensors, tensor
from ckptprof.frameworks.knowledge import Code, Framework, Layer, directory, mark, temporary

_FOLDER = r"/checkpoint-(?P<step>\d{1,12})(?:/|$)"

FRAMEWORK = Framework(
    name="transformers",
    layer=Layer.TRAINER,
    libraries=(
        "torch",
        "accelerate",
        "safetensors",
    ),
    files=(
        mark(r"(?:model|adapter_model|pytorch_model).*\.(?:safetensors|bin)", _FOLDER),
        mark(r"(?:optimizer|scheduler|scaler)\.(?:pt|bin)", _FOLDER),
        mark(r"rng_state(?:_(?P<rank>\d+))?\.pth", _FOLDER),
        mark(r"(?:training_args\.bin|trainer_state\.json)", _FOLDER),
        mark(
            r"(?:\w+_)?__(?P<rank>\d+)_\d+\.distcp",
            r"/checkpoint-(?P<step>\d{1,12})/(?:pytorch_model_fsdp|optimizer)_\d+$",
        ),
        mark(
            r"(?:bf16_|fp16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_\d+_(?:model|optim)_states\.pt",
            r"/checkpoint-(?P<step>\d{1,12})/global_step\d+$",
        ),
        mark(r"mp_rank_\d+_model_states\.pt", r"/checkpoint-(?P<step>\d{1,12})/global_step\d+$"),
    ),
    directories=(directory(r"checkpoint-(?P<step>\d{1,12})"),),
    commit=(mark(r"trainer_state\.json", r"/checkpoint-\d+$"),),
    temporary=(temporary("tmp-", r"^tmp-(?=checkpoint-\d+$)"),),
    code=Code(saves=(r"transformers/trainer_pt_utils",)),
    names="`checkpoint-N/`: `model*.safetensors`, `optimizer.pt`, `rng_state_R.pth`; FSDP and DeepSpeed folders in it",
    completed_by="`trainer_state.json`",
    proven_by=("tests/e2e/jobs/hf_trainer.py",),
    saves=(
        Save(
            (
                safetensors("checkpoint-{step}/model.safetensors"),
                tensor("checkpoint-{step}/optimizer.pt", 80),
                tensor("checkpoint-{step}/scheduler.pt", SMALL),
                *each(Write("checkpoint-{step}/rng_state_{rank}.pth", SMALL)),
                Write("checkpoint-{step}/trainer_state.json", SMALL),
            ),
            path="checkpoint-{step}",
            ranks=2,
        ),
        Save(
            (
                *dcp("checkpoint-{step}/pytorch_model_fsdp_0"),
                *dcp("checkpoint-{step}/optimizer_0"),
                Write("checkpoint-{step}/trainer_state.json", SMALL),
            ),
            path="checkpoint-{step}",
            ranks=2,
            variant="fsdp",
        ),
        Save(
            (
                tensor("checkpoint-{step}/global_step{step}/mp_rank_00_model_states.pt"),
                *each(
                    Write(
                        "checkpoint-{step}/global_step{step}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
                        40,
                        magic=TORCH_ZIP,
                    )
                ),
                Write("checkpoint-{step}/latest", SMALL),
                Write("checkpoint-{step}/trainer_state.json", SMALL),
            ),
            path="checkpoint-{step}",
            ranks=2,
            variant="deepspeed",
        ),
    ),
)
