"""The manifests for Kubernetes: strictly what its API takes, and no more of the node than is said.

The schemas are those of kubernetes-validate 1.37.0 (PyPI; made from the OpenAPI of Kubernetes 1.37), with each object
closed, cut down to what a DaemonSet and a Namespace are made of, without descriptions. That of a PodMonitor is made of
the types of @kubernetes-models/prometheus-operator 6.0.0 (npm) by ts-json-schema-generator, as Grafana's is.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import ckptprof
from ckptprof.assets import asset
from ckptprof.cli import options
from ckptprof.export.listening import DEFAULT_PORT, guarded

ROOT = Path(__file__).resolve().parents[2]
KUSTOMIZE = ROOT / "deploy" / "kustomize"
SCHEMAS = json.loads((ROOT / "tests/fixtures/kubernetes/strict-1.37.json").read_text(encoding="utf-8"))
MONITOR = json.loads((ROOT / "tests/fixtures/kubernetes/podmonitor-spec.json").read_text(encoding="utf-8"))
KINDS = {"DaemonSet": "io.k8s.api.apps.v1.DaemonSet", "Namespace": "io.k8s.api.core.v1.Namespace"}
FOLDERS = sorted(path.parent for path in KUSTOMIZE.rglob("kustomization.yaml"))
TEXTFILES = "/var/lib/node_exporter/textfile_collector"
KNOWN = {"apiVersion", "kind", "namespace", "resources", "images", "patches", "replacements"}


def built(folder: Path) -> list[dict[str, Any]]:
    """Return what `kustomize build` makes, as far as these files ask of it."""
    asked = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    assert set(asked) <= KNOWN
    found: list[dict[str, Any]] = []
    for name in asked["resources"]:
        path = folder / name
        found += built(path) if path.is_dir() else list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    found = copy.deepcopy(found)
    for one in found:
        if "namespace" in asked and one["kind"] != "Namespace":
            one["metadata"]["namespace"] = asked["namespace"]
        for image in asked.get("images", ()):
            for container in _containers(one):
                if container["image"] == image["name"]:
                    container["image"] = f"{image['newName']}:{image['newTag']}"
    _patch(found, asked.get("patches", ()))
    _replace(found, asked.get("replacements", ()))
    return found


def _patch(found: list[dict[str, Any]], patches: Iterable[dict[str, Any]]) -> None:
    for patch in patches:
        chosen = [
            one
            for one in found
            if one["kind"] == patch["target"]["kind"] and one["metadata"]["name"] == patch["target"]["name"]
        ]
        assert chosen
        for one in chosen:
            for operation in yaml.safe_load(patch["patch"]):
                _apply(one, **operation)


def _replace(found: list[dict[str, Any]], replacements: Iterable[dict[str, Any]]) -> None:
    """Copy values from one place of an object to others of it."""
    for one in replacements:
        (of,) = (each for each in found if each["kind"] == one["source"]["kind"])
        value = _at(of, one["source"]["fieldPath"].split("."))
        for target in one["targets"]:
            assert target["select"]["kind"] == one["source"]["kind"]
            for path in target["fieldPaths"]:
                _apply(of, "replace", f"/{path.replace('.', '/')}", value)


def _at(one: Any, path: list[str]) -> Any:
    """Return what is at a path."""
    return _at(one[int(path[0]) if isinstance(one, list) else path[0]], path[1:]) if path else one


def _containers(one: dict[str, Any]) -> list[dict[str, Any]]:
    return one["spec"]["template"]["spec"]["containers"] if one["kind"] == "DaemonSet" else []  # type: ignore[no-any-return]


def _apply(one: Any, op: str, path: str, value: Any = None) -> None:
    """Do an operation of RFC 6902."""
    *above, last = path.split("/")[1:]
    for name in above:
        one = one[int(name) if isinstance(one, list) else name]
    if isinstance(one, list) and last == "-":
        assert op == "add"
        one.append(value)
        return
    key: Any = int(last) if isinstance(one, list) else last
    if op == "remove":
        del one[key]
        return
    assert (op, isinstance(one, dict) and key in one) in (("replace", True), ("add", False))
    one[key] = value


def daemon(folder: Path) -> dict[str, Any]:
    """Return the pod that a folder asks for on each node."""
    (found,) = (one for one in built(folder) if one["kind"] == "DaemonSet")
    return found["spec"]["template"]["spec"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_it_is_what_the_api_takes(folder: Path) -> None:
    """No field that there is not, no value of another type; base and overlays."""
    for one in built(folder):
        if one["kind"] == "PodMonitor":
            found = list(Draft202012Validator(MONITOR).iter_errors(one["spec"]))
        else:
            schema = {"$ref": f"#/$defs/{KINDS[one['kind']]}", "$defs": SCHEMAS["$defs"]}
            found = list(Draft202012Validator(schema).iter_errors(one))
        assert [f"{error.json_path}: {error.message}" for error in found] == []


def test_a_field_that_there_is_not_is_found() -> None:
    """The schemas are closed: a slip of the pen would not pass."""
    (one,) = (one for one in built(KUSTOMIZE / "base") if one["kind"] == "DaemonSet")
    one["spec"]["template"]["spec"]["containers"][0]["securityContext"]["priviledged"] = False
    schema = {"$ref": f"#/$defs/{KINDS['DaemonSet']}", "$defs": SCHEMAS["$defs"]}

    assert [error.json_path for error in Draft202012Validator(schema).iter_errors(one)] == [
        "$.spec.template.spec.containers[0].securityContext"
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_it_may_no_more_than_the_service_on_a_node(folder: Path) -> None:
    """The same capabilities, nothing privileged, nothing of the node but its record that could be written."""
    spec = daemon(folder)
    agent, *others = spec["containers"]
    assert [one["name"] for one in others] == (["ship"] if folder.name == "ship" else [])
    context = agent["securityContext"]
    unit = asset("systemd/ckptprof.service").read_text(encoding="utf-8")
    (bounding,) = (line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    of_unit = {name.removeprefix("CAP_") for name in bounding.partition("=")[2].split()}
    wanted = of_unit - {"BPF", "PERFMON"} if folder.name == "poll-only" else of_unit

    assert set(context["capabilities"]["add"]) == wanted
    assert context["capabilities"]["drop"] == ["ALL"]
    assert (context["privileged"], context["allowPrivilegeEscalation"]) == (False, False)
    assert context["readOnlyRootFilesystem"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    assert (spec["hostPID"], spec["hostNetwork"]) == (True, True)
    assert "hostIPC" not in spec
    of_host = {one["name"]: one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    mounts = {one["name"]: one for each in (*others, agent) for one in each["volumeMounts"]}
    assert set(mounts) == {one["name"] for one in spec["volumes"]}
    more = {"textfile": {TEXTFILES}, "ship": {"/var/lib/ckptprof-ship"}}
    written = {"/var/lib/ckptprof"} | more.get(folder.name, set())
    assert {of_host[name] for name in of_host if not mounts[name].get("readOnly")} == written
    assert all(path == mounts[name]["mountPath"] for name, path in of_host.items())
    assert not {"/", "/proc", "/var", "/etc", "/run"} & set(of_host.values())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_what_it_uses_of_the_node_is_bounded_as_the_unit_is(folder: Path) -> None:
    """By memory, and by no quota of the CPU; it has the time to store what has come."""
    spec = daemon(folder)
    agent = spec["containers"][0]
    unit = asset("systemd/ckptprof.service").read_text(encoding="utf-8")

    assert f"MemoryMax={agent['resources']['limits']['memory'].removesuffix('i')}" in unit
    assert "cpu" not in agent["resources"]["limits"]
    assert f"TimeoutStopSec={spec['terminationGracePeriodSeconds']}" in unit


@pytest.mark.parametrize("address", ["10.0.0.7", "fd00::1"])
def test_it_listens_on_a_node_of_either_family(address: str) -> None:
    """Kubernetes puts the address of the node before the port as it is, without brackets."""
    (agent,) = daemon(KUSTOMIZE / "overlays/tls")["containers"]
    (listen,) = (one["value"] for one in agent["env"] if one["name"] == "CKPTPROF_LISTEN")

    assert options.address(listen.replace("$(NODE_IP)", address)) == (address, 12578)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_its_metrics_are_served_and_probed_as_the_agent_allows(folder: Path) -> None:
    """On loopback, where the kubelet is as well; on the node's address with certificates, of which it has none."""
    agent = daemon(folder)["containers"][0]
    probes = [agent[name] for name in ("livenessProbe", "readinessProbe")]
    given = dict(one.removeprefix("--").split("=") for one in agent["args"][1:])
    if folder.name in ("tls", "podmonitor"):
        assert guarded("10.0.0.7", *(Path(given[name]) for name in ("tls-cert", "tls-key", "client-ca"))) is not None
        assert [one["tcpSocket"] for one in probes] == [{"port": DEFAULT_PORT}] * 2
    else:
        assert "CKPTPROF_LISTEN" not in {one["name"] for one in agent["env"]}
        asked = {"host": "127.0.0.1", "path": "/healthz", "port": DEFAULT_PORT}
        assert [one["httpGet"] for one in probes] == [asked] * 2
        assert given == ({"textfile": TEXTFILES} if folder.name == "textfile" else {})


def test_the_overlays_change_what_they_say() -> None:
    """And nothing else."""
    base, poll, lustre, nvidia = (
        daemon(KUSTOMIZE / name) for name in ("base", "overlays/poll-only", "overlays/lustre", "overlays/nvidia")
    )

    assert {one["name"] for one in base["volumes"]} - {one["name"] for one in poll["volumes"]} == {"tracing"}
    assert {"name": "CKPTPROF_LEVEL", "value": "poll"} in poll["containers"][0]["env"]
    assert {one["name"] for one in lustre["volumes"]} - {one["name"] for one in base["volumes"]} == {"debug"}
    assert nvidia["runtimeClassName"] == "nvidia"
    assert nvidia["containers"][0]["securityContext"] == base["containers"][0]["securityContext"]


def test_the_shipper_may_less_than_its_unit() -> None:
    """Beside the agent, from the same image: no capability, the record read-only, the memory of its unit."""
    agent, ship = daemon(KUSTOMIZE / "overlays/ship")["containers"]
    unit = asset("systemd/ckptprof-ship.service").read_text(encoding="utf-8")
    (started,) = (line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart="))

    assert ship["image"] == agent["image"]
    assert " ".join(ship["args"]) == started
    assert ship["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert ship["securityContext"]["readOnlyRootFilesystem"] is True
    (record,) = (one for one in ship["volumeMounts"] if one["mountPath"] == "/var/lib/ckptprof")
    assert record["readOnly"] is True
    assert f"MemoryMax={ship['resources']['limits']['memory'].removesuffix('i')}" in unit


def test_a_monitor_scrapes_what_is_served() -> None:
    """By the port, the label and the job's name that the alert rules expect."""
    every = built(KUSTOMIZE / "overlays/podmonitor")
    (monitor,) = (one["spec"] for one in every if one["kind"] == "PodMonitor")
    (pod,) = (one["spec"]["template"] for one in every if one["kind"] == "DaemonSet")
    (endpoint,) = monitor["podMetricsEndpoints"]
    (port,) = (one for one in pod["spec"]["containers"][0]["ports"] if one["name"] == endpoint["port"])

    assert port["containerPort"] == DEFAULT_PORT
    assert monitor["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert pod["metadata"]["labels"][monitor["jobLabel"]] == "ckptprof"


def test_the_image_is_pinned() -> None:
    """To the version of this checkout: a pod that starts tomorrow runs what one of today runs."""
    images = {one["image"] for folder in FOLDERS for one in daemon(folder)["containers"]}

    assert images == {f"registry.example.com/ckptprof:{ckptprof.__version__.removesuffix('.dev0')}"}


def test_the_image_is_asked_for_by_where_it_is_built() -> None:
    """The file that builds it stands where the manifests say; the image's program is the one that the unit runs."""
    text = (KUSTOMIZE.parent / "Containerfile").read_text(encoding="utf-8")
    unit = asset("systemd/ckptprof.service").read_text(encoding="utf-8")
    (entry,) = (json.loads(line.partition(" ")[2]) for line in text.splitlines() if line.startswith("ENTRYPOINT"))

    assert f"ExecStart={' '.join(entry)} agent" in unit
    assert daemon(KUSTOMIZE / "base")["containers"][0]["args"] == ["agent"]
