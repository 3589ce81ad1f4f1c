"""What to say of a command that there is not: which command does what its name asks for, or is spelled almost so."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_CLOSE = 0.75  # of `difflib`: `reprot` is as close to `report` as `export` is, and `restore` less
_REST = "`ckptprof --help` lists the commands"

# What people type who know other tools, and what does that here
_INSTEAD = (
    ("json csv dump parquet", "`ckptprof export` writes what was recorded as CSV, Parquet and the like"),
    (
        "query select sqlite sqlite3",
        "`ckptprof sql 'SELECT * FROM v_checkpoints'` asks the database, `ckptprof sql` lists its tables",
    ),
    (
        "status state ps",
        "`ckptprof service status` tells whether the service runs, `ckptprof doctor` what is seen on this host",
    ),
    (
        "start enable install setup init",
        "`ckptprof run -- CMD` profiles one command, `ckptprof service install` the whole host, as root",
    ),
    (
        "stop disable uninstall remove",
        "Ctrl-C ends `ckptprof agent`, and `ckptprof service uninstall` the service, as root",
    ),
    (
        "record rec save",
        "`ckptprof run -- CMD` records the checkpoints of a command, `ckptprof capture FILE` raw samples",
    ),
    ("profile exec launch wrap trace attach perf", "`ckptprof run -- CMD` profiles one command"),
    (
        "top watch monitor tail follow",
        "`ckptprof live` shows what goes on, `ckptprof agent` watches this host",
    ),
    (
        "daemon serve server metrics exporter prometheus",
        "`ckptprof agent` watches this host, prints each checkpoint and serves metrics",
    ),
    ("stats stat statistics summary summarize result results", "`ckptprof report` sums up what was recorded"),
    ("ls log logs history checkpoints events saves restores", "`ckptprof list` prints one line for each checkpoint"),
    (
        "info inspect view get cat describe explain why detail details",
        "`ckptprof show ID` tells all of one checkpoint, `ckptprof list` prints the ids",
    ),
    ("compare cmp", "`ckptprof diff A B` compares two runs"),
    ("check test health verify selftest", "`ckptprof doctor` checks what is seen on this host"),
    ("bench benchmark probe speed fio", "`ckptprof ceiling DIR` measures the best rates of a directory"),
    ("advise advice recommend interval estimate", "`ckptprof plan` tells how often to save, and on what storage"),
    ("play load open import analyze analyse", "`ckptprof replay FILE` reports the checkpoints in a recording"),
    ("completions complete autocomplete", "`ckptprof completion bash` prints the completion script of a shell"),
    ("help man usage", "`ckptprof --help` lists the commands, `ckptprof report --help` tells one of them"),
)


def hint(typed: Sequence[str], commands: Iterable[str]) -> str:
    """Return what to type instead of a command line that begins with none of our commands."""
    name = typed[0]
    for names, told in _INSTEAD:
        if name.lower() in names.split():
            return told
    if near := get_close_matches(name, commands, n=1, cutoff=_CLOSE):
        return f"did you mean `ckptprof {near[0]}`?"
    if name and shutil.which(name) is not None:
        return f"`ckptprof run -- {shlex.join(typed)}` profiles that command"
    return _REST
