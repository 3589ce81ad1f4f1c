"""What Python stacks say of the thread that trains: which frames mean a save, which a wait, which neither."""

from __future__ import annotations

import pytest

from ckptprof.detect.world.stack_states import classify_thread, saves_in_background
from ckptprof_collectors.samples import StackSample, ThreadStack

LOOP = (("step", "/job/train.py", 30), ("main", "/job/train.py", 80))
CORE = "/site-packages/megatron/core/dist_checkpointing/strategies"
AT_ONCE = (
    ("Queue.get", "/lib/python3.11/multiprocessing/queues.py", 103),
    ("write_preloaded_data_multiproc", f"{CORE}/filesystem_async.py", 300),
    ("AsyncRequest.execute_sync", f"{CORE}/async_utils.py", 80),
    ("save", "/site-packages/megatron/core/dist_checkpointing/serialization.py", 400),
    ("main", "/job/train.py", 90),
)
LATER = (
    ("Process.join", "/lib/python3.11/multiprocessing/process.py", 149),
    ("AsyncCallsQueue.maybe_finalize_async_calls", f"{CORE}/async_utils.py", 500),
    ("main", "/job/train.py", 95),
)


@pytest.mark.parametrize(
    ("frames", "what", "background"),
    [(AT_ONCE, "saving", False), (LATER, "waiting", True), (LOOP, "training", False)],
    ids=["at-once", "later", "loop"],
)
def test_megatron_core_saves_at_once_by_the_code_that_also_saves_later(
    frames: tuple[tuple[str, str, int], ...], what: str, *, background: bool
) -> None:
    """Its synchronous save runs the writer of the asynchronous one, and waits for its processes."""
    sample = StackSample(0, 100, 1, 0, (ThreadStack(100, "MainThread", active=False, frames=frames),))

    assert classify_thread(frames, [LOOP]) == what
    assert saves_in_background(sample) is background


JAX = ("block_until_ready", "/site-packages/jax/_src/api.py", 2900)


@pytest.mark.parametrize(
    ("called", "what"),
    [
        ((JAX, ("learn", "/job/train.py", 44)), "training"),
        ((JAX, ("_stage", "/site-packages/orbax/checkpoint/_src/serialization/serialization.py", 90)), "saving"),
    ],
    ids=["of-a-step", "of-the-save"],
)
def test_a_step_that_a_program_takes_within_its_own_save_is_training(
    called: tuple[tuple[str, str, int], ...], what: str
) -> None:
    """It waits for the device that computes the step; below a library that saves it waits for what is saved."""
    frames = (*called, ("save", "/job/train.py", 60), ("main", "/job/train.py", 80))

    assert classify_thread(frames, [LOOP]) == what


@pytest.mark.parametrize(("called", "what"), [((), "saving"), ((("learn", "/job/train.py", 44),), "named")])
def test_who_sleeps_in_a_save_waits_for_it_but_not_in_what_it_calls(
    called: tuple[tuple[str, str, int], ...], what: str
) -> None:
    """A step may be computed by other threads while the one that called it sleeps: its rhythm tells."""
    frames = (*called, ("save", "/job/train.py", 60), ("main", "/job/train.py", 80))

    assert classify_thread(frames, [LOOP], sleeps=True) == what
    assert classify_thread(frames, [LOOP]) == "named"
