"""What held up who waited for a disk behind a fabric: its target, the way to it, or paths that could not be used.

The kernel counts how long each request of a path took, on its way and at its target. With NVMe over TCP its connections
tell how long a round takes and who held data up; with RDMA the port tells of congestion; of Fibre Channel nothing does.
"""

from __future__ import annotations

from ckptprof.diagnose.accounts.clients import LONG
from ckptprof.diagnose.accounts.connections import of_storage
from ckptprof.diagnose.sight import MOST, SLIGHT, Sight, some
from ckptprof.measures import PathMeasure
from ckptprof.units import latency, plural, seconds

OPTIMIZED = "optimized"


def paths_of(sight: Sight) -> tuple[PathMeasure, ...]:
    """Return the paths to the disk under the files; none where it is no NVMe behind a fabric."""
    mount = sight.measures.mount
    return mount.paths if mount is not None else ()


def lost(sight: Sight) -> list[PathMeasure]:
    """Return those that could not be used for a while that matters."""
    return [one for one in paths_of(sight) if some(one.lost_seconds) > SLIGHT * sight.span]


def detours(sight: Sight) -> list[PathMeasure]:
    """Return those that took a part of it, though the target says that they are not its best."""
    devices = {one.device: one for one in sight.measures.devices}

    def moved(one: PathMeasure) -> float:
        device = devices.get(one.device)
        return 0.0 if device is None else (device.written_bytes if sight.writes else device.read_bytes)

    whole = sum(map(moved, paths_of(sight)))
    others = [one for one in paths_of(sight) if one.ana_state not in (None, OPTIMIZED)]
    return [one for one in others if moved(one) and moved(one) >= SLIGHT * whole]


def is_cut_off(sight: Sight, waiting: float) -> bool:
    """Return whether no path could be used for most of the waiting."""
    mount = sight.measures.mount
    return mount is not None and 0 < MOST * waiting <= some(mount.cut_off_seconds)


def asked(sight: Sight) -> float | None:
    """Return the share of the time in which a request was on its way, of the path where it was most; None: not seen."""
    shares = [
        one.busy_seconds / one.seconds for one in sight.measures.devices if one.busy_seconds is not None and one.seconds
    ]
    return min(1.0, max(shares)) if shares else None


def trouble(sight: Sight) -> str | None:
    """Say which paths could not be used, and for how long; None: all could."""
    found = lost(sight)
    if not found:
        return None
    told = ", ".join(f"{one.device} to {place(one)} was {one.state} for {seconds(one.lost_seconds)}" for one in found)
    return f"of {plural(len(paths_of(sight)), 'path')} {told}"


def place(one: PathMeasure) -> str:
    """Return where a path leads."""
    if one.target is None:
        return f"NVMe over {one.transport}"
    return one.target if one.port is None else f"{f'[{one.target}]' if ':' in one.target else one.target}:{one.port}"


def target(sight: Sight) -> str:
    """Say who was waited for, and how long a request took where a round is known."""
    places = list(dict.fromkeys(map(place, paths_of(sight))))
    over = "/".join(sorted({one.transport for one in paths_of(sight)}))
    who = f"the NVMe target {places[0]}" if len(places) == 1 else f"its {len(places)} NVMe targets"
    wait, round_ = _wait(sight), _round(sight)
    way = "" if round_ is None else f", a round {latency(round_)}"
    took = "" if wait is None else f" (a request took {latency(wait)}{way})"
    return f"asleep waiting for {who} over {over}{took}"


def answers_late(sight: Sight) -> bool:
    """Return whether writes take so much longer than a round to the target that the target itself takes it.

    A round that is measured here waits in the queues on the way there, not in those that what is read comes through.
    """
    wait, round_ = _wait(sight), _round(sight)
    return sight.writes and wait is not None and round_ is not None and wait >= LONG * round_


def _wait(sight: Sight) -> float | None:
    """Return how long a request took, on its way and at the target."""
    device = sight.device
    return None if device is None else (device.write_wait_seconds if sight.writes else device.read_wait_seconds)


def _round(sight: Sight) -> float | None:
    """Return how long a round took, with the queues on the way."""
    return max((value for one in of_storage(sight) if (value := one.rtt_seconds)), default=None)
