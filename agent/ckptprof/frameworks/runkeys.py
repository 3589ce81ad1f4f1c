"""What joins the checkpoints of one run over its nodes: a key that each node makes alone of what it sees, or none.

Nothing is resolved and nobody is asked. Two runs at a time have two keys, as far as that can be seen; a later run at
the same meeting place may have the key of an earlier one. A run whose nodes see different things has several, and is
then told node by node.

Slurm's paths: `src/plugins/cgroup/v1/xcgroup.c`, `doc/man/man5/cgroup.conf.5` (`CgroupJobIdPaths`),
`src/common/sluid.c`; its steps without a number: `slurm/slurm.h`. Kubernetes: both cgroup drivers of the kubelet.
How often torchrun has restarted is no part of a key: each node's agent counts for itself (`api.py` of torch's elastic
agent: "membership changes do not count as retries"), and a new rendezvous has another port.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import NamedTuple

from ckptprof.model import Run

_HERE = frozenset(("", "localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"))
_MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # torchrun's own run id: another on each node
_SLUID = "s[0-9A-HJKMNP-TV-Z]{13}"
_SLURM = re.compile(
    r"/(?:slurm(?:_[^/]+)?/uid_\d+|(?:[^/]+_)?slurmstepd\.scope|\.\.)"
    rf"/(?:job_(?P<job>\d+)|(?P<sluid>{_SLUID}))/step_(?P<step>[a-z]+|\d+)(?=/|$)"
)
_OF_USERS = re.compile(r"/user\.slice/|/user@\d+\.service(?:/|$)")  # where users make folders of any name
_STEPS = {"4294967290": "interactive", "4294967291": "batch", "4294967292": "extern"}
_POD = re.compile(
    r"kubepods[^/]*(?:/[^/]*)*?[/-]pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?=[./:]|$)"
)
_NUMBER = re.compile(r"[0-9]{1,10}")
_WORD = re.compile(r"[\w.:@+-]{1,128}", re.ASCII)


class SlurmStep(NamedTuple):
    """A step of a Slurm job."""

    job: str | None
    sluid: str | None  # since 26.05: unique over clusters and requeues
    step: str  # a number, or batch, interactive, extern


def slurm_step_of(cgroup: str | None) -> SlurmStep | None:
    """Return the step that a process of this cgroup is of."""
    if not cgroup or _OF_USERS.search(cgroup):
        return None
    found = _SLURM.search(cgroup)
    return SlurmStep(found["job"], found["sluid"], found["step"]) if found else None


def pod_of(cgroup: str | None) -> str | None:
    """Return the uid of the pod, with dashes, that a process of this cgroup is of."""
    if not cgroup or _OF_USERS.search(cgroup) or "/crio-conmon-" in cgroup:
        return None
    found = _POD.search(cgroup)
    return found["uid"].replace("_", "-") if found else None


def run_of(environment: Mapping[str, str], cgroup: str | None) -> Run | None:
    """Return the run that a rank with this environment and cgroup is of; None: nothing says what other nodes say, too.

    `environment` is that of the rank itself: a pod's, or a launcher's, says other things by the same names.
    """
    meeting = _meeting(environment, cgroup)
    slurm = _slurm(environment, cgroup, meeting)
    if slurm is not None:
        return slurm
    flux = environment.get("FLUX_JOB_ID", "")
    if _WORD.fullmatch(flux):
        return Run(key=f"flux:{flux}", scheduler="flux", job=flux)
    if meeting is None or meeting.startswith(":"):
        return None
    if pod_of(cgroup) is not None or "KUBERNETES_SERVICE_HOST" in environment:
        node = _number(environment, "JOB_COMPLETION_INDEX")
        return Run(key=f"kubernetes:{meeting}", scheduler="kubernetes", node=node)
    return Run(key=f"rendezvous:{meeting}", scheduler="rendezvous")


def _slurm(environment: Mapping[str, str], cgroup: str | None, meeting: str | None) -> Run | None:
    placed, told = slurm_step_of(cgroup), _told_step(environment)
    step = placed or told
    if step is None:
        return None
    conflict = None
    if placed is not None and told is not None and _are_others(placed, told):
        conflict = f"SLURM_JOB_ID is {told.job}, step {told.step}"
        environment = {}
    elif placed is not None and told is not None:
        step = SlurmStep(placed.job or told.job, placed.sluid or told.sluid, placed.step)
    restart = _number(environment, "SLURM_RESTART_COUNT")
    if step.sluid is not None:
        key = f"slurm:{step.sluid}.{step.step}"
    else:
        cluster = environment.get("SLURM_CLUSTER_NAME", "")
        key = f"slurm:{cluster if _WORD.fullmatch(cluster) else ''}/{step.job}.{step.step}"
        key += f"+{restart}" if restart else ""
    nodes, node = _number(environment, "SLURM_JOB_NUM_NODES"), _number(environment, "SLURM_NODEID")
    if meeting is None:
        if not step.step.isdigit():  # a shell's, who starts what it likes, one after the other or at once
            return None
    elif not meeting.startswith(":"):  # a step may start several runs
        key = f"{key}@{meeting}"
    else:  # they meet on this node, and others on theirs
        if node is None and nodes != 1:
            return None
        key = f"{key}@node{node or 0}{meeting}"
    job = step.job or step.sluid
    return Run(key=key, scheduler="slurm", job=job, restart=restart, nodes=nodes, node=node, conflict=conflict)


def _are_others(placed: SlurmStep, told: SlurmStep) -> bool:
    same = [a == b for a, b in zip(placed[:2], told[:2], strict=True) if a is not None and b is not None]
    return not all(same) or placed.step != told.step


def _told_step(environment: Mapping[str, str]) -> SlurmStep | None:
    job, sluid = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_SLUID", "")
    step = environment.get("SLURM_STEP_ID") or environment.get("SLURM_STEPID") or "batch"
    if not _NUMBER.fullmatch(job) or not (_NUMBER.fullmatch(step) or step == "batch"):
        return None
    return SlurmStep(job, sluid if re.fullmatch(_SLUID, sluid) else None, _STEPS.get(step, step))


def _meeting(environment: Mapping[str, str], cgroup: str | None) -> str | None:
    """Return where the ranks meet, as all nodes call it; ":PORT": on this host; None: not told."""
    named = told_name(environment) or ""
    named = named if _WORD.fullmatch(named) else ""
    host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if "RANK" not in environment or not port:
        coordinator = environment.get("JAX_COORDINATOR_ADDRESS") or environment.get("COORDINATOR_ADDRESS") or ""
        host, _, port = coordinator.rpartition(":")
    if not _NUMBER.fullmatch(port):
        return named or None
    host = _plain(host)
    if host in _HERE and pod_of(cgroup) is not None and environment.get("RANK") == "0":
        host = _plain(environment.get("HOSTNAME", ""))  # of a PyTorchJob: the others call the first pod by its name
    if host in _HERE:
        return f":{port}"
    if not _WORD.fullmatch(host):
        return named or None
    return f"{host}:{port}" + (f"/{named}" if named else "")


def told_name(environment: Mapping[str, str]) -> str | None:
    """Return the name that a person gave the run."""
    run = environment.get("TORCHELASTIC_RUN_ID")
    return run if run and run != "none" and not _MADE_UP.fullmatch(run) else None


def is_here(host: str) -> bool:
    """Return whether a host is this one, by whatever name of it that means another host elsewhere."""
    return _plain(host) in _HERE


def _plain(host: str) -> str:
    """Return a host as all nodes may call it, "" for this one: without case, brackets and domain.

    An address stays what it is, and a name of Kubernetes keeps its namespace: others have jobs of the same name.
    """
    host = host.strip().lower().strip("[]").rstrip(".")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name, *domain = host.split(".")
        space = domain[domain.index("svc") - 1] if "svc" in domain[1:] else ""
        return f"{name}.{space}" if space else name
    address = getattr(address, "ipv4_mapped", None) or address
    return "" if address.is_loopback or address.is_unspecified else str(address)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    value = environment.get(name, "")
    return int(value) if _NUMBER.fullmatch(value) else None
