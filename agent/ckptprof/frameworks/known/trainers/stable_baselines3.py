"""Stable-Baselines3 (common/save_util.py, common/callbacks.py: CheckpointCallback): a zip archive, in place.

`rl_model_1000_steps.zip` by its callback; `ppo_cartpole.zip` and `models/PPO/10000.zip` in what people write by
model.save; beside it, where asked for, `rl_model_replay_buffer_1000_steps.pkl` and `…_vecnormalize_…`.
"""

from ckptprof.frameworks.examples import NPZ, PICKLE, Save, Write
from ckptprof.frameworks.knowledge import Framework, Layer, mark

FRAMEWORK = Framework(
    name="stable-baselines3",
    layer=Layer.TRAINER,
    libraries=("torch",),
    weight=0.4,
    formats=frozenset(("zip", "pickle")),
    files=(
        mark(r".*_(?P<step>\d{1,12})_steps\.zip"),
        mark(r".*_(?:replay_buffer|vecnormalize)_(?P<step>\d{1,12})_steps\.pkl"),
        mark(r"best_model\.zip"),
        mark(r"(?i:ppo|a2c|dqn|sac|td3|ddpg|trpo|tqc|qrdqn|crossq)(?:[-_].*)?\.zip"),
        mark(r"(?P<step>\d{2,12})\.zip", r"/(?:models?|checkpoints?|ckpts?)(?:/[^/]+)?$"),
    ),
    names="`PREFIX_N_steps.zip`, `PREFIX_replay_buffer_N_steps.pkl`, `best_model.zip`, `models/PPO/N.zip`, `ppo_*.zip`",
    saves=(
        Save(
            (
                Write("rl_model_{step}_steps.zip", 40, magic=NPZ),
                Write("rl_model_replay_buffer_{step}_steps.pkl", 80, magic=PICKLE),
            )
        ),
    ),
)
