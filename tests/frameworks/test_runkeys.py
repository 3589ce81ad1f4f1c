"""What joins the checkpoints of one run over nodes: keys that its nodes make alike, and no two runs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ckptprof.frameworks.runkeys import SlurmStep, identify_run, job_key, parse_pod, parse_slurm_step
from ckptprof.model import Run
from ckptprof_collectors.processes.programs import ENVIRONMENT_KEYS, known_variables

_SLUID = "sEKNKTV3WPV500"
_POD = "2942c55e-c9cb-428a-93f4-eaf89c1f3ce0"
_POD_PATH = f"/kubepods.slice/kubepods-pod{_POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope"
_STEP = "/system.slice/slurmstepd.scope/job_4711/step_0/user/task_3"


@pytest.mark.parametrize(
    ("cgroup", "step"),
    [
        ("/slurm/uid_1000/job_42/step_0/task_0", SlurmStep("42", None, "0")),
        ("/slurm/uid_1000/job_42/step_batch/task_0", SlurmStep("42", None, "batch")),
        ("/slurm/uid_1000/job_42/step_extern", SlurmStep("42", None, "extern")),
        ("/slurm/uid_1000/job_42/step_interactive/task_0", SlurmStep("42", None, "interactive")),
        ("/slurm_node7/uid_0/job_42/step_11/task_0", SlurmStep("42", None, "11")),  # MULTIPLE_SLURMD
        (_STEP, SlurmStep("4711", None, "0")),
        ("/system.slice/slurmstepd.scope/job_42/step_batch/user/task_special", SlurmStep("42", None, "batch")),
        ("/system.slice/node7_slurmstepd.scope/job_42/step_1/user/task_0", SlurmStep("42", None, "1")),
        ("/hpc.slice/slurmstepd.scope/job_42/step_1/slurm", SlurmStep("42", None, "1")),  # CgroupSlice
        (f"/system.slice/slurmstepd.scope/{_SLUID}/step_0/user/task_0", SlurmStep(None, _SLUID, "0")),  # 26.05
        (f"/system.slice/n1_slurmstepd.scope/{_SLUID}/step_batch/user", SlurmStep(None, _SLUID, "batch")),
        (f"/slurm/uid_1000/{_SLUID}/step_3/task_0", SlurmStep(None, _SLUID, "3")),
        ("/../../job_42/step_0/user/task_0", SlurmStep("42", None, "0")),  # of a private cgroup namespace
        (_POD_PATH + _STEP, SlurmStep("4711", None, "0")),  # slurmd in a pod
        (_STEP + "/slurmstepd.scope/job_1/step_9", SlurmStep("4711", None, "0")),  # made by the job itself
        ("/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_1/step_0", None),
        ("/user.slice/slurm/uid_0/job_1/step_0", None),
        ("/system.slice/slurmstepd.scope/system", None),
        ("/system.slice/slurmstepd.scope/job_42", None),
        ("/system.slice/slurmstepd.scope/job_x/step_0", None),
        ("/system.slice/slurmstepd.scope/sEKNKTV3WPV50/step_0", None),  # one letter short
        ("/system.slice/slurmstepd.scope/sEKNKTV3WPV50I/step_0", None),  # Crockford's base 32 has no I
        ("/system.slice/my-slurmstepd.service/job_42/step_0", None),
        ("/slurm/uid_1000/job_42/step_0x/task_0", None),
        ("/../job_42/step_batch/user/task_special", SlurmStep("42", None, "batch")),
        (f"/../{_SLUID}/step_0", SlurmStep(None, _SLUID, "0")),
        ("/../../../job_42/../step_0", None),
        ("/job_42/step_0/user/task_0", None),  # a namespace of its own, whose root anybody may have named so
        ("/slurm/uid_1000/job_42\n/step_0", None),
        ("/slurm/uid_x/job_42/step_0/task_0", None),
        ("/", None),
        ("", None),
        (None, None),
    ],
)
def test_a_cgroup_tells_the_step(cgroup: str | None, step: SlurmStep | None) -> None:
    """All layouts of Slurm are read, and no folder that a user made himself."""
    assert parse_slurm_step(cgroup) == step


@pytest.mark.parametrize(
    ("cgroup", "pod"),
    [
        (f"/kubepods/burstable/pod{_POD}/{'ab' * 32}", _POD),
        (f"/kubepods/pod{_POD}/{'ab' * 32}", _POD),  # guaranteed, as those that train
        (f"/kubepods/pod{_POD}/crio-{'ab' * 32}", _POD),
        (_POD_PATH, _POD),
        (f"{_POD_PATH}/container", _POD),
        (_POD_PATH.replace("kubepods-pod", "kubepods-besteffort-pod").replace("cri-containerd", "docker"), _POD),
        (
            f"/system.slice/containerd.service/kubepods-burstable-pod{_POD.replace('-', '_')}.slice:cri-containerd:"
            + "ab" * 32,
            _POD,
        ),
        (f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{_POD.replace('-', '_')}.slice/x.scope", _POD),
        (f"/docker/{'cd' * 32}/kubelet.slice/kubelet-kubepods.slice/pod{_POD}/{'ab' * 32}", _POD),  # kind
        (f"/../../kubepods-burstable.slice/kubepods-burstable-pod{_POD.replace('-', '_')}.slice/a.scope", _POD),
        ("/kubepods/burstable/pod" + "0f" * 16 + "/" + "ab" * 32, "0f" * 16),  # static
        (
            "/kubepods/poda48c12e8-255a-11e9-8cd9-0007cb0b2cc8/crio-63425c4a8b4291744a79dd9011fddc7a1f8ffda61f65d72",
            "a48c12e8-255a-11e9-8cd9-0007cb0b2cc8",
        ),
        (_POD_PATH.replace("cri-containerd-", "crio-"), _POD),
        (_POD_PATH.replace("cri-containerd-", "crio-") + "/container/gpu", _POD),
        (f"/../../../kubepods/besteffort/pod{_POD}/{'ab' * 32}", _POD),
        (f"/../kubepods-pod{_POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope", _POD),
        (f"/../cri-containerd-{'ab' * 32}.scope", None),  # only its container is seen
        (f"/system.slice/k3s.service/kubepods/burstable/pod{_POD}/{'ab' * 32}", _POD),
        (f"/k8s.io/{'ab' * 32}", None),
        (f"/docker/{'ab' * 32}", None),
        (f"/machine.slice/libpod-{'ab' * 32}.scope", None),
        (f"/kubepods/pod{_POD.upper()}/x", None),
        (f"/kubepods/pod{_POD}\u200b/x", None),
        (f"/user.slice/user-1000.slice/user@1000.service/kubelet.slice/kubepods/pod{_POD}/x", None),
        (_POD_PATH.replace("cri-containerd-", "crio-conmon-"), None),
        ("/kubepods.slice/kubepods-burstable.slice", None),
        (f"/kubepods/pod{_POD[:-1]}/x", None),
        (f"/user.slice/user-1000.slice/kubepods/pod{_POD}/x", None),
        (None, None),
    ],
)
def test_a_cgroup_tells_the_pod(cgroup: str | None, pod: str | None) -> None:
    """Both drivers, all classes of service and runtimes, nested or not."""
    assert parse_pod(cgroup) == pod


_TORCH = {"RANK": "9", "MASTER_ADDR": "Node-1.Cluster.example", "MASTER_PORT": "29500"}
_SLURM = {
    "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_CLUSTER_NAME": "alps", "SLURM_JOB_NUM_NODES": "8",
    "SLURM_NODEID": "3",
}  # fmt: skip
_MPI = {"OMPI_COMM_WORLD_RANK": "9", "OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}
_KUBERNETES = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@pytest.mark.parametrize(
    ("environment", "cgroup", "key"),
    [
        (_SLURM, _STEP, "slurm:alps/4711.0"),
        (_SLURM, None, "slurm:alps/4711.0"),
        ({**_SLURM, **_TORCH}, _STEP, "slurm:alps/4711.0@node-1:29500"),
        ({**_SLURM, "SLURM_RESTART_COUNT": "2"}, _STEP, "slurm:alps/4711.0+2"),
        ({**_SLURM, "SLURM_RESTART_COUNT": "0"}, _STEP, "slurm:alps/4711.0"),
        ({**_SLURM, "SLURM_JOB_SLUID": _SLUID}, _STEP, f"slurm:{_SLUID}.0"),  # a requeue has another
        ({**_SLURM, "SLURM_JOB_SLUID": _SLUID, "SLURM_RESTART_COUNT": "2"}, _STEP, f"slurm:{_SLUID}.0"),
        ({}, f"/system.slice/slurmstepd.scope/{_SLUID}/step_0/user/task_0", f"slurm:{_SLUID}.0"),
        ({}, _STEP, "slurm:/4711.0"),
        ({**_SLURM, "SLURM_JOB_ID": "1"}, _STEP, "slurm:/4711.0"),  # overwritten: the cgroup is right
        ({**_SLURM, "SLURM_STEP_ID": "7"}, _STEP, "slurm:/4711.0"),
        ({**_SLURM, **_TORCH, "SLURM_STEP_ID": "4294967291"}, None, "slurm:alps/4711.batch@node-1:29500"),
        ({**_SLURM, "SLURM_STEP_ID": "4294967291"}, None, None),  # a shell starts several, at once or in turn
        ({"SLURM_JOB_ID": "4711"}, None, None),
        ({**_SLURM, "SLURM_STEP_ID": "4294967290"}, None, None),
        ({**_SLURM, "SLURM_CLUSTER_NAME": "a/b;c d"}, _STEP, "slurm:/4711.0"),
        ({"SLURM_JOB_ID": "47 11"}, None, None),
        # torchrun on each node by itself: eight runs
        ({**_SLURM, **_TORCH, "MASTER_ADDR": "localhost"}, _STEP, "slurm:alps/4711.0@node3:29500"),
        (
            {**_SLURM, **_TORCH, "MASTER_ADDR": "127.0.0.1", "SLURM_JOB_NUM_NODES": "1", "SLURM_NODEID": "0"},
            _STEP,
            "slurm:alps/4711.0@node0:29500",
        ),
        ({"SLURM_JOB_ID": "4711", **_TORCH, "MASTER_ADDR": "::1"}, None, None),
        (_TORCH, None, "rendezvous:node-1:29500"),
        ({**_TORCH, "MASTER_ADDR": "NODE-1"}, None, "rendezvous:node-1:29500"),
        ({**_TORCH, "MASTER_ADDR": "node-1."}, None, "rendezvous:node-1:29500"),
        ({**_TORCH, "MASTER_ADDR": "10.0.0.1"}, None, "rendezvous:10.0.0.1:29500"),
        ({**_TORCH, "MASTER_ADDR": "[FD00::1]"}, None, "rendezvous:fd00::1:29500"),
        ({**_TORCH, "TORCHELASTIC_RUN_ID": "llama"}, None, "rendezvous:node-1:29500/llama"),
        ({**_TORCH, "TORCHELASTIC_RUN_ID": "none"}, None, "rendezvous:node-1:29500"),
        ({**_TORCH, "TORCHELASTIC_RUN_ID": "0a1b2c3d-0000-1111-2222-0123456789ab"}, None, "rendezvous:node-1:29500"),
        # agents count restarts for themselves: another node may say 0 of the same run
        ({**_TORCH, "TORCHELASTIC_RESTART_COUNT": "1"}, None, "rendezvous:node-1:29500"),
        ({**_TORCH, "MASTER_ADDR": "localhost"}, None, None),
        ({**_TORCH, "MASTER_ADDR": "127.0.1.1"}, None, None),  # what `hostname -i` says on Debian
        ({**_TORCH, "MASTER_ADDR": "::ffff:127.0.0.1"}, None, None),
        ({**_TORCH, "MASTER_ADDR": "ip6-localhost"}, None, None),
        ({**_TORCH, "MASTER_PORT": "x"}, None, None),
        ({"MASTER_ADDR": "node-1", "MASTER_PORT": "29500"}, None, None),  # of the launcher
        ({"TORCHELASTIC_RUN_ID": "llama"}, None, "rendezvous:llama"),
        ({**_TORCH, "MASTER_ADDR": "no de"}, None, None),
        ({"JAX_COORDINATOR_ADDRESS": "node-1:1234"}, None, "rendezvous:node-1:1234"),
        ({"COORDINATOR_ADDRESS": "localhost:1234"}, None, None),
        ({"FLUX_JOB_ID": "f2Ww4Jx3"}, None, "flux:f2Ww4Jx3"),
        ({**_KUBERNETES, **_TORCH}, _POD_PATH, "kubernetes:node-1:29500"),
        (_TORCH, _POD_PATH, "kubernetes:node-1:29500"),
        # the master of a PyTorchJob calls itself localhost, the workers call it by its pod's name
        (
            {**_TORCH, "RANK": "0", "MASTER_ADDR": "localhost", "HOSTNAME": "llama-master-0"},
            _POD_PATH,
            "kubernetes:llama-master-0:29500",
        ),
        ({**_TORCH, "MASTER_ADDR": "llama-master-0"}, _POD_PATH, "kubernetes:llama-master-0:29500"),
        ({**_TORCH, "MASTER_ADDR": "llama-0.team-a.svc.cluster.local"}, _POD_PATH, "kubernetes:llama-0.team-a:29500"),
        ({**_TORCH, "MASTER_ADDR": "localhost", "HOSTNAME": "llama-master-0"}, _POD_PATH, None),
        (_KUBERNETES, _POD_PATH, None),
        ({}, None, None),
        # a job of several components has as many ids, and one place where its ranks meet
        ({**_SLURM, **_TORCH, "SLURM_HET_SIZE": "2"}, _STEP, "rendezvous:node-1:29500"),
        (
            {**_SLURM, **_TORCH, "SLURM_HET_SIZE": "2", "SLURM_JOB_ID": "4712"},
            _STEP.replace("4711", "4712"),
            "rendezvous:node-1:29500",
        ),
        ({**_SLURM, **_TORCH, "SLURM_HET_SIZE": "2", "SLURM_RESTART_COUNT": "1"}, _STEP, "rendezvous:node-1:29500+1"),
        ({**_SLURM, **_TORCH, "SLURM_HET_SIZE": "2", "MASTER_ADDR": "localhost"}, _STEP, None),
        ({**_SLURM, "SLURM_HET_SIZE": "2"}, _STEP, None),
        ({**_SLURM, "SLURM_HET_SIZE": "1"}, _STEP, "slurm:alps/4711.0"),
        ({**_SLURM, "SLURM_HET_SIZE": "x"}, _STEP, "slurm:alps/4711.0"),
        # each task of an array is a job of its own
        ({**_SLURM, "SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "7"}, _STEP, "slurm:alps/4711.0"),
        ({**_SLURM, "SLURM_RESTART_COUNT": "-1"}, _STEP, "slurm:alps/4711.0"),
        ({**_SLURM, "SLURM_RESTART_COUNT": "99999999999"}, _STEP, "slurm:alps/4711.0"),
        ({**_SLURM, "SLURM_JOB_SLUID": "s\u200bEKNKTV3WPV50"}, _STEP, "slurm:alps/4711.0"),
        ({**_SLURM, "SLURM_CLUSTER_NAME": "x" * 200}, _STEP, "slurm:/4711.0"),
        ({**_SLURM, "SLURM_CLUSTER_NAME": "a\x1b[2J"}, _STEP, "slurm:/4711.0"),
        ({**_SLURM, **_KUBERNETES}, _POD_PATH + _STEP, "slurm:alps/4711.0"),  # slurmd in a pod
        ({**_TORCH, "MASTER_ADDR": "a" * 129}, None, None),
        ({**_TORCH, "MASTER_ADDR": "<b>"}, None, None),
        ({**_TORCH, "TORCHELASTIC_RUN_ID": "a b"}, None, "rendezvous:node-1:29500"),
        ({"PET_RDZV_ENDPOINT": "llama-worker-0:23456"}, _POD_PATH, "kubernetes:llama-worker-0:23456"),
        (
            {"PET_RDZV_ENDPOINT": "llama-worker-0:23456", "TORCHELASTIC_RUN_ID": "x"},
            _POD_PATH,
            "kubernetes:llama-worker-0:23456/x",
        ),
        ({"PET_RDZV_ENDPOINT": "llama-worker-0:23456", **_TORCH}, _POD_PATH, "kubernetes:node-1:29500"),
        ({"PET_RDZV_ENDPOINT": "localhost:0"}, _POD_PATH, None),
        ({"PET_RDZV_ENDPOINT": "llama-worker-0"}, _POD_PATH, None),
        # ranks of which more run in other pods of the same owner
        ({**_MPI, "HOSTNAME": "llama-worker-3"}, _POD_PATH, "kubernetes:/llama"),
        ({**_MPI, "HOSTNAME": "llama-launcher-0"}, _POD_PATH, "kubernetes:/llama"),
        ({**_MPI, "POD_NAME": "llama-3"}, _POD_PATH, "kubernetes:/llama"),  # of a StatefulSet
        ({**_MPI, "POD_NAME": "llama-3", "POD_NAMESPACE": "team-a"}, _POD_PATH, "kubernetes:team-a/llama"),
        ({**_MPI, "POD_NAME": "llama-3", "POD_NAMESPACE": "team/a"}, _POD_PATH, "kubernetes:/llama"),
        ({**_MPI, "HOSTNAME": "gpu-node-17", "POD_NAME": "llama-worker-3"}, _POD_PATH, "kubernetes:/llama"),
        ({**_MPI, "HOSTNAME": "llama-3", "JOB_COMPLETION_INDEX": "3"}, _POD_PATH, "kubernetes:/llama"),
        ({**_MPI, "POD_NAME": "llama-3-x7k2p", "JOB_COMPLETION_INDEX": "3"}, _POD_PATH, "kubernetes:/llama"),
        # of a JobSet
        (
            {**_MPI, "HOSTNAME": "llama-workers-0-3", "JOB_COMPLETION_INDEX": "3"},
            _POD_PATH,
            "kubernetes:/llama-workers-0",
        ),
        ({**_MPI, "HOSTNAME": "llama-4", "JOB_COMPLETION_INDEX": "3"}, _POD_PATH, None),
        ({**_MPI, "HOSTNAME": "llama-7d9c6b5f5b-x2x4z"}, _POD_PATH, None),  # of a ReplicaSet
        ({**_MPI, "HOSTNAME": "llama-7d9c6b5f5b-24567"}, _POD_PATH, None),
        ({**_MPI, "HOSTNAME": "raycluster-head"}, _POD_PATH, None),
        ({**_MPI, "HOSTNAME": "gpu-node-17"}, _POD_PATH, None),  # in the network of the node
        ({**_MPI, "HOSTNAME": "-3"}, _POD_PATH, None),
        ({**_MPI, "HOSTNAME": "a b-3"}, _POD_PATH, None),
        ({**_MPI, "HOSTNAME": "x" * 140 + "-3"}, _POD_PATH, None),
        (_MPI, _POD_PATH, None),
        ({**_MPI, "HOSTNAME": "llama-3"}, None, None),  # a host of that name
        ({**_MPI, "POD_NAME": "llama-3", **_KUBERNETES}, "/", "kubernetes:/llama"),  # of a private cgroup namespace
        # a sweep: each pod trains for itself
        ({**_MPI, "POD_NAME": "llama-3", "OMPI_COMM_WORLD_LOCAL_SIZE": "16"}, _POD_PATH, None),
        ({"HOSTNAME": "llama-3", "JOB_COMPLETION_INDEX": "3"}, _POD_PATH, None),
        ({"POD_NAME": "llama-3", "WORLD_SIZE": "16"}, _POD_PATH, None),
        ({"POD_NAME": "llama-3", "PMI_SIZE": "16", "MPI_LOCALNRANKS": "8"}, _POD_PATH, "kubernetes:/llama"),
        (
            {"LWS_LEADER_ADDRESS": "Llama-0.llama.team-a", "LWS_GROUP_SIZE": "4", "LWS_WORKER_INDEX": "2"},
            _POD_PATH,
            "kubernetes:llama-0.llama.team-a",
        ),
        ({"LWS_LEADER_ADDRESS": "llama-0.llama.team-a", "LWS_GROUP_SIZE": "1"}, _POD_PATH, None),
        ({"LWS_LEADER_ADDRESS": "llama-0/../x", "LWS_GROUP_SIZE": "4"}, _POD_PATH, None),
    ],
)
def test_all_nodes_of_a_run_make_its_key(environment: dict[str, str], cgroup: str | None, key: str | None) -> None:
    """Of what an agent keeps of an environment."""
    run = identify_run(known_variables(environment), cgroup)
    assert (run.key if run else None) == key


def test_what_the_environment_says_otherwise_is_told() -> None:
    """A user may overwrite it, not the cgroup."""
    run = identify_run(known_variables({**_SLURM, "SLURM_JOB_ID": "1"}), _STEP)
    assert run == Run(key="slurm:/4711.0", scheduler="slurm", job="4711", conflict="SLURM_JOB_ID is 1, step 0")


@pytest.mark.parametrize(
    ("environment", "cgroup", "nodes", "node"),
    [
        (_SLURM, _STEP, 8, 3),
        ({**_SLURM, "SLURM_STEP_NUM_NODES": "4"}, _STEP, 4, 3),  # which SLURM_NODEID counts
        ({**_SLURM, **_TORCH, "MASTER_ADDR": "localhost"}, _STEP, 1, 0),  # each of them for itself
        ({**_SLURM, **_TORCH, "SLURM_HET_SIZE": "2"}, _STEP, None, None),
        ({**_TORCH, "GROUP_WORLD_SIZE": "4", "GROUP_RANK": "3"}, None, 4, 3),  # of torchrun
        ({**_TORCH, "JOB_COMPLETION_INDEX": "5"}, _POD_PATH, None, 5),
        ({**_TORCH, "GROUP_WORLD_SIZE": "4", "GROUP_RANK": "3", "JOB_COMPLETION_INDEX": "5"}, _POD_PATH, 4, 3),
        ({"LWS_LEADER_ADDRESS": "a.b.c", "LWS_GROUP_SIZE": "4", "LWS_WORKER_INDEX": "2"}, _POD_PATH, 4, 2),
        ({"FLUX_JOB_ID": "f2", "FLUX_JOB_NNODES": "16"}, None, 16, None),
        (_TORCH, None, None, None),
    ],
)
def test_a_run_knows_its_nodes(
    environment: dict[str, str], cgroup: str | None, nodes: int | None, node: int | None
) -> None:
    """As many as it has, and which of them this one is, as far as its launcher says."""
    run = identify_run(known_variables(environment), cgroup)
    assert run is not None
    assert (run.nodes, run.node) == (nodes, node)


def test_a_run_that_is_started_again_is_counted() -> None:
    """By its scheduler."""
    run = identify_run(known_variables({**_SLURM, "SLURM_RESTART_COUNT": "2"}), _STEP)
    assert run == Run(key="slurm:alps/4711.0+2", scheduler="slurm", job="4711", restart=2, nodes=8, node=3)


@pytest.mark.parametrize(
    "secret", ["AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "HF_TOKEN", "SLURM_JWT", "MASTER_PASSWORD"]
)
def test_no_secret_is_kept(secret: str) -> None:
    """Whatever else an environment holds."""
    assert known_variables({secret: "x", "RANK": "0"}) == {"RANK": "0"}


_VALUES = st.one_of(st.text(), st.sampled_from(["0", "2", "a-3", "a.b.svc", "[::1]", "::ffff:7f00:1", "a:1", _SLUID]))


@given(st.dictionaries(st.sampled_from(sorted(ENVIRONMENT_KEYS)), _VALUES), st.one_of(st.text(), st.just(_POD_PATH)))
def test_whatever_a_user_sets_a_key_is_a_word(environment: dict[str, str], cgroup: str) -> None:
    """Nothing in it breaks a line, a table or a name of a file, and it is bounded."""
    run = identify_run(environment, cgroup)
    assert run is None or re.fullmatch(r"(slurm|kubernetes|flux|rendezvous):[\w./:@+-]{0,700}", run.key, re.ASCII)


@pytest.mark.parametrize(
    ("run", "job"),
    [
        (Run(key="slurm:alpha/8812.0", scheduler="slurm", job="8812"), "slurm:alpha/8812"),
        (Run(key="slurm:alpha/8812.0+2", scheduler="slurm", job="8812", restart=2), "slurm:alpha/8812"),
        (Run(key="slurm:alpha/8812.1+2@gpu-7:29500/a", scheduler="slurm", job="8812", restart=2), "slurm:alpha/8812"),
        (Run(key="slurm:/8812.batch", scheduler="slurm", job="8812"), "slurm:/8812"),
        (Run(key="slurm:sEKNKTV3WPV500.0", scheduler="slurm", job="8812", restart=1), "slurm:/8812"),
        (Run(key="slurm:sEKNKTV3WPV500.0@gpu/7", scheduler="slurm", job="8812"), "slurm:/8812"),
        (Run(key="rendezvous:gpu-1:29500+3", scheduler="slurm", job="17", restart=3), "rendezvous:gpu-1:29500"),
        (Run(key="rendezvous:gpu-1:29500", scheduler="slurm", job="18", restart=0), "rendezvous:gpu-1:29500"),
        (Run(key="kubernetes:team/llm", scheduler="kubernetes", job="llm"), "kubernetes:team/llm"),
        (Run(key="rendezvous:gpu-1:29500", scheduler="rendezvous"), "rendezvous:gpu-1:29500"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.key,
)
def test_the_runs_of_one_job_are_known_by_it(run: Run, job: str) -> None:
    """Whatever node a restart meets on; what is no job of Slurm is itself."""
    assert job_key(run) == job


def test_whose_a_job_of_slurm_is_is_told() -> None:
    """As far as it is a word, and the environment is of the same job."""
    whose = {"SLURM_JOB_USER": "alice", "SLURM_JOB_ACCOUNT": "nlp", "SLURM_JOB_PARTITION": "h100 x"}
    environment = {"SLURM_JOB_ID": "8812", "SLURM_STEP_ID": "0", "SLURM_CLUSTER_NAME": "alpha", **whose}

    run = identify_run(environment, None)
    other = identify_run(environment, "/system.slice/slurmstepd.scope/job_9/step_0/user/task_0")

    assert run is not None
    assert (run.key, run.user, run.account, run.partition) == ("slurm:alpha/8812.0", "alice", "nlp", None)
    assert other is not None
    assert (other.job, other.user, other.account) == ("9", None, None)
