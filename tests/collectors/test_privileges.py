"""Giving capabilities up: really gone where reading works without, still there where it does not."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ckptprof_collectors import privileges
from ckptprof_collectors.privileges import TRACING_MASK

PYTHON = shutil.which("python3", path="/usr/bin") or ""  # one that any user may run
pytestmark = [
    pytest.mark.root,
    pytest.mark.capabilities("BPF", "PERFMON", "SYS_PTRACE", "DAC_READ_SEARCH"),
    pytest.mark.skipif(not PYTHON, reason="no /usr/bin/python3"),
]

SEE = 1 << 19
PROBE = """
import dataclasses, json, os, sys, threading, types
privileges = sys.modules["privileges"] = types.ModuleType("privileges")
exec(sys.argv[1], privileges.__dict__)  # read as a user who may not enter this checkout

def check():
    if privileges.read_capabilities().effective & privileges.TRACING_MASK != 0:
        raise AssertionError("tried with what is to be given up")
    {check}

def raised():
    try:
        held = privileges.read_capabilities()
        privileges.set_capabilities(dataclasses.replace(held, effective=privileges.TRACING_MASK | {see}))
        return True
    except OSError:
        return False

def ambient():
    lines = open("/proc/thread-self/status").read().splitlines()
    return next(int(line.split()[1], 16) for line in lines if line.startswith("CapAmb"))

dropped = {call}
in_thread = []
thread = threading.Thread(target=lambda: in_thread.append(privileges.read_capabilities().effective))
thread.start()
thread.join()
after = privileges.read_capabilities()
print(json.dumps(dict(dropped=dropped, effective=after.effective, permitted=after.permitted,
    inheritable=after.inheritable, ambient=ambient(), thread=in_thread[0], raised=raised())))
"""


def probe(call: str, check: str = "pass", *, capabilities: str = "+sys_ptrace,+bpf,+perfmon") -> dict[str, int]:
    """Become an unprivileged user with these capabilities, as systemd would make it, and give some up."""
    caps = f"-all,{capabilities}"
    code = PROBE.format(call=call, check=check, see=SEE)
    source = Path(privileges.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", f"--inh-caps={caps}",
         f"--ambient-caps={caps}", f"--bounding-set={caps}", PYTHON, "-I", "-c", code, source],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


def test_what_reading_does_not_need_is_gone_for_good() -> None:
    """Out of all sets, also of the threads that come later; what else is held stays."""
    found = probe("privileges.drop_tracing(check)")

    assert found == {
        "dropped": True, "effective": SEE, "permitted": SEE, "inheritable": SEE, "ambient": SEE, "thread": SEE,
        "raised": False,
    }  # fmt: skip


def test_what_reading_needs_is_kept() -> None:
    """As on kernels before 5.19 where bpf(2) asks for it at each call."""
    found = probe("privileges.drop_tracing(check)", "raise PermissionError(1, 'Operation not permitted')")
    both = SEE | TRACING_MASK

    assert found == {
        "dropped": False, "effective": both, "permitted": both, "inheritable": both, "ambient": both, "thread": both,
        "raised": True,
    }  # fmt: skip


RESTING = """
import json, os, subprocess, sys, threading, types
privileges = sys.modules["privileges"] = types.ModuleType("privileges")
exec(sys.argv[1], privileges.__dict__)
raised = privileges.RAISED

def effective():  # of each thread, by the kernel's word
    found = {}
    for task in os.listdir("/proc/self/task"):
        lines = open(f"/proc/self/task/{task}/status").read().splitlines()
        found[task] = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff"))
    return sorted(found.values())

def within(lowers):  # what all threads have while one waits that an operation has started
    there, go = threading.Event(), threading.Event()
    def wait():
        if lowers:
            raised.lower()
        there.set()
        go.wait()
    with raised:
        thread = threading.Thread(target=wait)
        thread.start()
        there.wait()
        seen = effective()
    go.set()
    thread.join()
    return seen

before = effective()
raised.drop_effective()
resting = effective()
with raised:
    with raised:
        pass
    nested = effective()
try:
    with raised:
        raise KeyError
except KeyError:
    after = effective()
child = subprocess.run(["/bin/cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
held = privileges.read_capabilities()
print(json.dumps(dict(before=before, resting=resting, nested=nested, after=after, lowered=within(True),
    inherited=within(False), permitted=held.permitted, child=next(int(line.split()[1], 16)
    for line in child.splitlines() if line.startswith("CapEff")))))
"""


@pytest.mark.parametrize(
    ("user", "resting", "raised"), [(65534, 0, SEE | TRACING_MASK), (0, SEE | TRACING_MASK, SEE | TRACING_MASK)]
)
def test_capabilities_are_effective_in_operations_alone(user: int, resting: int, raised: int) -> None:
    """In the thread that is at one, and until its outermost end; children have them all the same. Root stays root."""
    caps = "-all,+sys_ptrace,+bpf,+perfmon"
    source = Path(privileges.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", f"--inh-caps={caps}",
         f"--ambient-caps={caps}", f"--bounding-set={caps}", PYTHON, "-I", "-c", RESTING, source],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    assert json.loads(done.stdout) == {
        "before": [raised], "resting": [resting], "nested": [raised], "after": [resting],
        "lowered": sorted([resting, raised]), "inherited": [raised, raised], "permitted": raised, "child": raised,
    }  # fmt: skip


def test_each_thread_that_a_tick_starts_lowers_them_first() -> None:
    """For it begins with those that are raised in the tick; `call_with_timeout` is of the recorder."""
    lowers = {}
    for path in sorted(Path(privileges.__file__).parent.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "threading.Thread":
                target = next(ast.unparse(one.value) for one in call.keywords if one.arg == "target")
                begin = functions[target.removeprefix("self.")].body[0]
                lowers[path.name] = ast.unparse(begin) == "RAISED.lower()"

    assert lowers == {"abandoned.py": False, "gpu_sampler.py": True, "python_stacks.py": True, "workers.py": True}


def test_who_never_had_them_is_rid_of_them() -> None:
    """A container without them: nothing is tried."""
    found = probe("privileges.drop_tracing(lambda: 1 / 0)", capabilities="+sys_ptrace")

    assert (found["dropped"], found["effective"], found["ambient"]) == (True, SEE, SEE)


def test_root_stays_root() -> None:
    """Nothing is asked of it, and nothing taken."""
    code = "import sys; from ckptprof_collectors import privileges as p; a = p.read_capabilities()\n"
    code += "print(p.drop_tracing(lambda: 1 / 0), p.RAISED.drop_effective(), p.read_capabilities() == a)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "False None True\n"
    assert os.geteuid() == 0


HIDDEN = """
import json, os, sys, types
privileges = sys.modules["privileges"] = types.ModuleType("privileges")
exec(sys.argv[1], privileges.__dict__)
before = os.stat("/proc/self/status").st_uid
privileges.forbid_ptrace()
after = os.stat("/proc/self/status").st_uid
print(json.dumps(dict(before=before, after=after, files=len(os.listdir("/proc/self/fd")) > 0)))
"""


@pytest.mark.parametrize(("capabilities", "owner"), [("+sys_ptrace,+dac_read_search", 0), ("", 65534)])
def test_who_holds_capabilities_cannot_be_looked_into(capabilities: str, owner: int) -> None:
    """What cannot be dumped is root's in /proc, and still readable for itself; without capabilities nothing changes."""
    caps = f"-all,{capabilities}" if capabilities else "-all"
    source = Path(privileges.__file__).read_text(encoding="utf-8")
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--inh-caps={caps}",
         f"--ambient-caps={caps}", PYTHON, "-I", "-c", HIDDEN, source],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"before": 65534, "after": owner, "files": True}
