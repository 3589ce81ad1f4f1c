"""Stand-ins for the tests of the sampler."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from standintrace import Desk
from tests.patience import LIFETIME


@pytest.fixture
def desk() -> Iterator[Callable[..., Desk]]:
    """Return a maker of samplers; they are ended with the test."""
    made: list[Desk] = []

    def make(attach: Callable[..., Any], **options: Any) -> Desk:
        made.append(Desk(attach, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """Return a process without any sign, in a session of its own."""
    with subprocess.Popen(["sleep", LIFETIME], start_new_session=True) as process:
        yield process
        process.kill()
