"""Hugging Face Trainer (transformers/trainer.py): checkpoint-STEP/ with trainer_state.json written last."""

from ckptprof.frameworks.knowledge import Framework, patterns

FRAMEWORK = Framework(
    name="transformers",
    files=patterns(
        r"/checkpoint-(?P<step>\d+)/(?:.*/)?(?:model[^/]*\.safetensors|optimizer\.(?:pt|bin)|scheduler\.pt|scaler\.pt)$",
        r"/checkpoint-(?P<step>\d+)/(?:training_args\.bin|trainer_state\.json|rng_state(?:_(?P<rank>\d+))?\.pth)$",
    ),
    unit=patterns(r"/checkpoint-(?P<step>\d+)$"),
    commit=patterns(r"/checkpoint-\d+/trainer_state\.json$"),
)
