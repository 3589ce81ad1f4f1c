"""All everyday work, and what it needs: one line here adds a module of tasks."""

from __future__ import annotations

from everyday import building, fetching, learning, moving, storing
from everyday.task import Task

TASKS: tuple[Task, ...] = (
    *moving.TASKS,
    *fetching.TASKS,
    *building.TASKS,
    *storing.TASKS,
    *learning.TASKS,
)
BY_NAME: dict[str, Task] = {task.name: task for task in TASKS}
