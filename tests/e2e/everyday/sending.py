"""What ranks send and receive over TCP that is no state: each of them trains, and is called as torchrun calls it."""

from __future__ import annotations

import sys
import zlib

from everyday.task import PROGRAMS, Place, Task

_ONE_THREAD = "OMP_NUM_THREADS=1"
_RANK = ("RANK=0", "LOCAL_RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=127.0.0.1", _ONE_THREAD)


def _meeting(place: Place) -> str:
    """Return where a rank meets others: ranks that say the same are one job."""
    return f"MASTER_PORT={20_000 + zlib.crc32(str(place.folder).encode()) % 10_000}"


def _rank(name: str, way: str, *needs: str) -> Task:
    """Return a task that is one way of traffic.py."""
    program = PROGRAMS / "traffic.py"

    def do(place: Place) -> None:
        place.run("env", *_RANK, _meeting(place), sys.executable, program, way, place.store)

    return Task(f"rank: {name}", do, needs)


def _collective(name: str, way: str) -> Task:
    """Return a task of two ranks that talk to each other."""
    program = PROGRAMS.parents[1] / "jobs/sends.py"

    def do(place: Place) -> None:
        place.run("env", _ONE_THREAD, sys.executable, program, way, "--dir", place.folder)

    return Task(f"ranks: {name}", do)


TASKS = (
    _rank("a data set comes from a store", "data-set"),
    _rank("workers fetch a data set in each epoch", "workers"),
    _rank("a model is fetched before it trains", "pretrained"),
    _rank("the newest model is fetched after each epoch", "pulled"),
    _rank("a model is downloaded before it trains", "downloaded"),
    _rank("labels go back to the store of their data", "labels"),
    _rank("artefacts are uploaded after each epoch", "artefacts"),
    _rank("a large file is uploaded out of a mapping", "mapped"),
    _rank("commits to a hub", "hub"),
    _rank("pictures for a tracker", "media"),
    _rank("pictures of each evaluation", "pictures"),
    _rank("a video of each evaluation", "videos"),
    _rank("lines of a log are shipped", "log-lines"),
    _rank("batches of a log are shipped", "log-batches"),
    _rank("rows go to a database", "rows-of-postgres"),
    _rank("rollouts go to a cache", "rows-of-redis"),
    _rank("predictions go to a broker", "rows-of-kafka"),
    _rank("a parameter server", "parameters"),
    _rank("a parameter server that is asked seldom", "seldom-pulled"),
    _rank("a server of inference", "answers", "curl"),
    _rank("weights go to a server of inference", "pushed"),
    _rank("packages are fetched before it trains", "packages"),
    _rank("results are pushed by git", "revisions", "git"),
    _rank("results are sent by rsync", "results", "rsync"),
    _collective("gradients by gloo", "gradients"),
    _collective("a state that is gathered", "gathers"),
)
