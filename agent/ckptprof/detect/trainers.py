"""What the threads that train did: their time on CPU and their Python stacks, as far as they were looked at."""

from __future__ import annotations

from ckptprof_collectors.samples import StackSample, ThreadTime


class TrainerBook:
    """The recent past of the threads that train."""

    def __init__(self) -> None:
        """Start with nothing."""

    def learn_time(self, at_ns: int, time: ThreadTime) -> None:
        """Take one reading of a thread's times."""

    def learn_stacks(self, stacks: StackSample) -> None:
        """Take one look at a process's stacks."""

    def forget_before(self, at_ns: int) -> None:
        """Drop what is older."""
