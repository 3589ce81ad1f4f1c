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

import msgspec

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
    r"[/-]pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?=[./:]|$)"
)
_ROLES = "master|worker|chief|ps|evaluator|launcher|leader|server"  # of the pods of one PyTorchJob, TFJob, MPIJob
_OF_SET = re.compile(rf"(?P<owner>.+?)(?:-(?:{_ROLES}))?-\d{{1,4}}")  # a ReplicaSet's pods end in five characters
_OF_ROLE = re.compile(rf"(?P<owner>.+?)-(?:{_ROLES})-\d{{1,4}}")
_ALL_AND_HERE = (  # ranks of the run, and those of them that run where this one does
    ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
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
    at = cgroup.find("kubepods")
    found = _POD.search(cgroup, at) if at >= 0 else None
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
        nodes = _number(environment, "FLUX_JOB_NNODES")
        return Run(key=f"flux:{flux}", scheduler="flux", job=flux, nodes=nodes)
    if pod_of(cgroup) is not None or "KUBERNETES_SERVICE_HOST" in environment:
        return _kubernetes(environment, meeting)
    if meeting is None or meeting.startswith(":"):
        return None
    nodes, node = _agents(environment)
    return Run(key=f"rendezvous:{meeting}", scheduler="rendezvous", nodes=nodes, node=node)


def job_key(run: Run) -> str:
    """Return what the runs of one job have in common, which Slurm has started again; else the key of the run."""
    if run.scheduler != "slurm" or run.job is None:
        return run.key
    if not run.key.startswith("slurm:"):  # of a heterogeneous job, whose components have jobs of their own
        return run.key.removesuffix(f"+{run.restart}")
    cluster, slash, _ = run.key.removeprefix("slurm:").partition("@")[0].partition("/")
    return f"slurm:{cluster if slash else ''}/{run.job}"


def _agents(environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """Return how many agents of torchrun the run has, which are one on each node, and which of them started this."""
    return _number(environment, "GROUP_WORLD_SIZE"), _number(environment, "GROUP_RANK")


def _kubernetes(environment: Mapping[str, str], meeting: str | None) -> Run | None:
    """Return the run of a rank in a pod: by where the ranks meet, else by whose pods they run in.

    Pods of one owner may train each for itself: that they are one run is seen by ranks that are in none of this one's.
    """
    nodes, node = _agents(environment)
    node = _number(environment, "JOB_COMPLETION_INDEX") if node is None else node
    if meeting is not None:
        here = meeting.startswith(":")
        return None if here else Run(key=f"kubernetes:{meeting}", scheduler="kubernetes", nodes=nodes, node=node)
    group, size = environment.get("LWS_LEADER_ADDRESS", "").lower(), _number(environment, "LWS_GROUP_SIZE") or 0
    if _WORD.fullmatch(group) and size > 1:
        node = _number(environment, "LWS_WORKER_INDEX")
        return Run(key=f"kubernetes:{group}", scheduler="kubernetes", job=group, nodes=size, node=node)
    owner = _owner(environment)
    ranks = ((_number(environment, all_), _number(environment, here)) for all_, here in _ALL_AND_HERE)
    of_several_pods = any(all_ is not None and here is not None and all_ > here for all_, here in ranks)
    if owner is None or not of_several_pods:
        return None
    space = environment.get("POD_NAMESPACE", "")
    space = space if _WORD.fullmatch(space) else ""
    return Run(key=f"kubernetes:{space}/{owner}", scheduler="kubernetes", job=owner, nodes=nodes, node=node)


def _owner(environment: Mapping[str, str]) -> str | None:
    """Return the job or set whose pods have names that differ in a number only; None: this one's name has none."""
    index = _number(environment, "JOB_COMPLETION_INDEX")
    # in the node's network the second is the node's, which are numbered, too: all jobs would have one owner
    for name, of_set in (("POD_NAME", _OF_SET), ("HOSTNAME", _OF_ROLE)):
        pod = environment.get(name, "")
        if not _WORD.fullmatch(pod):
            continue
        found = (
            of_set.fullmatch(pod) if index is None else re.fullmatch(rf"(?P<owner>.+)-{index}(-[a-z0-9]{{5}})?", pod)
        )
        if found is not None:
            return found["owner"]
    return None


def _slurm(environment: Mapping[str, str], cgroup: str | None, meeting: str | None) -> Run | None:
    step, conflict = _step_of(environment, cgroup)
    if step is None:
        return None
    environment = environment if conflict is None else {}
    run = _slurm_run(environment, step, meeting, conflict)
    whose = {of: _word(environment, f"SLURM_JOB_{of.upper()}") for of in ("user", "account", "partition")}
    return None if run is None else msgspec.structs.replace(run, **whose)


def _slurm_run(
    environment: Mapping[str, str], step: SlurmStep, meeting: str | None, conflict: str | None
) -> Run | None:
    job, restart = step.job or step.sluid, _number(environment, "SLURM_RESTART_COUNT")
    if (_number(environment, "SLURM_HET_SIZE") or 1) > 1:  # each of its components has a job id and nodes of its own
        if meeting is None or meeting.startswith(":"):
            return None
        key = f"rendezvous:{meeting}" + (f"+{restart}" if restart else "")
        nodes, node = _agents(environment)
        return Run(key=key, scheduler="slurm", job=job, restart=restart, nodes=nodes, node=node)
    if step.sluid is not None:
        key = f"slurm:{step.sluid}.{step.step}"
    else:
        cluster = environment.get("SLURM_CLUSTER_NAME", "")
        key = f"slurm:{cluster if _WORD.fullmatch(cluster) else ''}/{step.job}.{step.step}"
        key += f"+{restart}" if restart else ""
    nodes = _number(environment, "SLURM_STEP_NUM_NODES")  # SLURM_NODEID counts those of the step
    nodes = _number(environment, "SLURM_JOB_NUM_NODES") if nodes is None else nodes
    node = _number(environment, "SLURM_NODEID")
    if meeting is None:
        if not step.step.isdigit():  # a shell's, who starts what it likes, one after the other or at once
            return None
    elif not meeting.startswith(":"):  # a step may start several runs
        key = f"{key}@{meeting}"
    else:  # they meet on this node, and others on theirs
        if node is None and nodes != 1:
            return None
        key, nodes, node = f"{key}@node{node or 0}{meeting}", 1, 0
    return Run(key=key, scheduler="slurm", job=job, restart=restart, nodes=nodes, node=node, conflict=conflict)


def _step_of(environment: Mapping[str, str], cgroup: str | None) -> tuple[SlurmStep | None, str | None]:
    """Return the step as the cgroup tells it, with what only the environment adds; and what that says otherwise."""
    placed, told = slurm_step_of(cgroup), _told_step(environment)
    if placed is None or told is None:
        return placed or told, None
    same = [a == b for a, b in zip(placed[:2], told[:2], strict=True) if a is not None and b is not None]
    if not all(same) or placed.step != told.step:
        return placed, f"SLURM_JOB_ID is {told.job}, step {told.step}"
    return SlurmStep(placed.job or told.job, placed.sluid or told.sluid, placed.step), None


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
        coordinator = coordinator or environment.get("PET_RDZV_ENDPOINT") or ""
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


def _word(environment: Mapping[str, str], name: str) -> str | None:
    value = environment.get(name, "")
    return value if _WORD.fullmatch(value) else None


def _number(environment: Mapping[str, str], name: str) -> int | None:
    value = environment.get(name, "")
    return int(value) if _NUMBER.fullmatch(value) else None
