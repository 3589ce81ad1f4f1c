"""What training jobs and their neighbours write and read beside checkpoints."""

from __future__ import annotations

from everyday.task import python

TASKS = (
    *(python(f"shards .{suffix}", "dataset.py", "shards", suffix) for suffix in ("npy", "npz", "pt", "bin", "arrow")),
    python("tokens in a memmap", "dataset.py", "tokens"),
    python("cached features", "dataset.py", "features"),
    python("loader reads shards", "dataset.py", "loader", "{store}/shards"),
    python("loader reads a memmap", "dataset.py", "map", "{store}/tokens.bin"),
    python("loader reads latents", "dataset.py", "latents", "{store}/latents"),
    python("data set in one file", "dataset.py", "one", "{store}/train_images.npy"),
    python("event files", "learning.py", "events"),
    python("tracker", "learning.py", "tracker"),
    python("chrome traces", "learning.py", "traces"),
    python("predictions", "learning.py", "predictions"),
    python("training that only logs", "learning.py", "train"),
)
