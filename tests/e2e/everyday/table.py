"""All everyday work, and what it needs: one line here adds a module of tasks."""

from __future__ import annotations

from everyday import building, fetching, learning, moving, storing
from everyday.task import Task

TASKS: tuple[Task, ...] = (*moving.TASKS, *fetching.TASKS, *building.TASKS, *storing.TASKS, *learning.TASKS)
BY_NAME: dict[str, Task] = {task.name: task for task in TASKS}
# Told as restores, and known to be: a process with PyTorch loaded reads a whole checkpoint from end to end, as loaders
# do; what it does with the bytes, a sum or a sending, is not seen. The benchmark counts them as false alarms.
KNOWN_LIMITS = frozenset(("hash a checkpoint with torch loaded", "upload with torch loaded"))
