"""No wait without a bound: a wait for a child, a thread or a worker says for how long, or is named here with a reason.

A child in state D ignores SIGKILL, so `subprocess.run(timeout=...)` and `with Popen(...)` wait for its end for ever.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IDLE = "a daemon thread that waits for work, and that no other thread waits for"
REVIEWED = {
    "agent/ckptprof/cli/output.py:page": "the pager of a person at a terminal, who ends it",
    "agent/ckptprof/fleet/compaction.py:read_inbox": "requests, each bounded by the SDK of its store",
    "agent/ckptprof/fleet/compaction.py:read_states": "requests, each bounded by the SDK of its store",
    "agent/ckptprof/fleet/compaction.py:_stale": "requests, each bounded by the SDK of its store",
    "agent/ckptprof/fleet/files.py:delete": "requests, each bounded by the SDK of its store",
    "agent/ckptprof/service/commands/monitored_command.py:reap": "the user's job: `run` lasts as long as it does",
    "agent/ckptprof/service/probing/probe.py:run_parallel": "in the process that `apart` leaves behind",
    "agent/ckptprof/service/probing/probe.py:begin": "in the process that `apart` leaves behind",
    "agent/ckptprof/service/recorder/signals.py:_collect": IDLE,
    "agent/ckptprof/service/sampler/entry_point.py:run": "the main thread, parked while another one runs the loop",
    "agent/ckptprof/service/sampler/entry_point.py:_replace_loop": (
        "for the first statement of a thread that has been started"
    ),
    "collectors/ckptprof_collectors/bpf/build.py:run": "`make bpf`: clang, run by a person at a terminal",
    "collectors/ckptprof_collectors/gpus/gpu_sampler.py:_run": IDLE,
    "collectors/ckptprof_collectors/processes/python_stacks.py:_run": IDLE,
}
# By the number of arguments before the bound
NEED_A_BOUND = {"wait": 0, "join": 0, "get": 0, "result": 0, "acquire": 0, "communicate": 1, "wait_for": 1}
WITHOUT_HANG = {"waitpid", "wait3", "wait4", "waitid"}
NEVER = {"check_call", "check_output", "getoutput", "getstatusoutput", "system", "sigwait", "sigwaitinfo"}


def names_of(node: ast.AST) -> set[str]:
    """Return each name and attribute within an expression."""
    found = [one for one in ast.walk(node) if isinstance(one, ast.Attribute | ast.Name)]
    return {one.attr if isinstance(one, ast.Attribute) else one.id for one in found}


def is_unbounded(call: ast.Call) -> bool:
    """Return whether a call may wait for ever for a child, a thread or a worker."""
    owner = names_of(call.func.value) if isinstance(call.func, ast.Attribute) else set()
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name in NEVER or (name in ("run", "call") and "subprocess" in owner) or name.endswith("PoolExecutor"):
        return True
    if name in WITHOUT_HANG:
        return "WNOHANG" not in names_of(call)
    if name in ("flock", "lockf"):
        return not names_of(call) & {"LOCK_NB", "LOCK_UN"}
    if name in NEED_A_BOUND and (isinstance(call.func, ast.Attribute) or name == "wait"):
        named = [one.value for one in call.keywords if "timeout" in (one.arg or "")]
        bounds = [*call.args[NEED_A_BOUND[name] :], *named]
        return all(isinstance(one, ast.Constant) and one.value in (None, True) for one in bounds)
    return False


def unbounded(tree: ast.AST, function: str = "") -> Iterator[tuple[str, int]]:
    """Yield the function and line of each such call, and of each `with Popen(...)`."""
    for node in ast.iter_child_nodes(tree):
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        if isinstance(node, ast.Call) and is_unbounded(node):
            yield function, node.lineno
        if isinstance(node, ast.With) and any("Popen" in names_of(one.context_expr) for one in node.items):
            yield function, node.lineno
        yield from unbounded(node, inner)


def test_each_wait_has_a_bound_or_a_reason() -> None:
    """In all that ships; and each reason is still needed."""
    found = {}
    for source in ("agent", "collectors"):
        for path in sorted((ROOT / source).rglob("*.py")):
            for function, line in unbounded(ast.parse(path.read_text(encoding="utf-8"))):
                found.setdefault(f"{path.relative_to(ROOT)}:{function}", line)

    assert {place: line for place, line in found.items() if place not in REVIEWED} == {}
    assert REVIEWED.keys() - found.keys() == set()


@pytest.mark.parametrize(
    "code",
    [
        "thread.join()", "process.wait()", "process.wait(None)", "process.communicate(data)", "event.wait()",
        "os.waitpid(pid, 0)", "os.wait4(pid, 0)", "subprocess.run(command, timeout=5)", "queue.get()",
        "future.result()", "lock.acquire()", "condition.wait_for(ready)", "fcntl.flock(fd, fcntl.LOCK_EX)",
        "with subprocess.Popen(command) as child: pass", "ThreadPoolExecutor(2)", "subprocess.check_output(command)",
    ],
)  # fmt: skip
def test_a_wait_without_a_bound_is_found(code: str) -> None:
    """The oracle of the test above."""
    assert list(unbounded(ast.parse(code)))
