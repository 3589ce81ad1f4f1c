"""The settings of the agent: its options and the settings file.

An option overrides the environment, the environment the file, the file the default. click implements this order: the
validated file becomes its `default_map`.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from ckptprof.cli import options
from ckptprof.errors import CkptprofError, UsageError

FILE = Path("/etc/ckptprof/config.toml")
LEAST_BYTES = 1 << 24
_MOST_BYTES = 1 << 16  # of the file
_LEAST_DAYS, _MOST_DAYS = 1, 36500
_LEAST_HZ, _MOST_HZ = 0.5, 100.0
_LEAST_BUDGET, _MOST_BUDGET = 1.0, 100.0  # percent of a core
_ADDRESS = msgspec.Meta(pattern=r"^\S+:[0-9]{1,5}$")
# Keys of the file. `db` is not one: the unit gives the service one writable directory.
TYPES: dict[str, Any] = {
    "level": str,
    "rate": Annotated[float, msgspec.Meta(ge=_LEAST_HZ, le=_MOST_HZ)],
    "cpu_budget": Annotated[float, msgspec.Meta(ge=_LEAST_BUDGET, le=_MOST_BUDGET)],
    "no_metrics": bool,
    "metrics": str,
    "job_names": bool,
    "listen": Annotated[str, _ADDRESS],
    "tls_cert": str,
    "tls_key": str,
    "client_ca": str,
    "textfile": str,
    "timeline_days": Annotated[int, msgspec.Meta(ge=_LEAST_DAYS, le=_MOST_DAYS)],
    "max_bytes": Annotated[int, msgspec.Meta(ge=LEAST_BYTES)],
}
# Settings of older versions, and their replacements: ignoring them would expose what they protected.
_REMOVED = {
    "web_config": "passwords and web.yml are gone; set tls_cert, tls_key and client_ca, or put a proxy before loopback",
}
_WORDS = {"level": ("auto", "trace", "poll"), "metrics": ("full", "minimal")}


def read(path: Path) -> dict[str, Any]:
    """Read a settings file; raises UsageError with the wrong line and key."""
    import msgspec.toml  # noqa: PLC0415 - for those who have a file

    try:
        with path.open("rb") as file:  # may be a device
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise UsageError(f"{path}: more than {_MOST_BYTES >> 10} KiB")
        text = raw.decode()
        table = msgspec.toml.decode(text, type=dict[str, Any])
    except OSError as error:
        raise CkptprofError(f"{path}: {error.strerror}", hint="`ckptprof service install` creates one") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8") from error
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors; a number may have too many digits
        raise UsageError(f"{path}: {error}", hint="the format is TOML: `key = value`, strings in quotes") from error
    for key, value in table.items():
        _check(f"{path} line {_line(text, key)}", key, value)
    return table


def check() -> None:
    """Raise CkptprofError if the service's settings file, or a file that it names, is invalid."""
    found = read(FILE) if FILE.exists() else {}
    if not found.get("no_metrics", False):
        named = [Path(found[key]) if key in found else None for key in ("tls_cert", "tls_key", "client_ca")]
        check_served(found.get("listen"), *named)


def check_served(listen: str | None, cert: Path | None, key: Path | None, client_ca: Path | None) -> None:
    """Raise CkptprofError if these settings of /metrics are invalid; files that this user may not read are skipped."""
    from ckptprof.export.listening import guarded  # noqa: PLC0415 - ssl is for those who serve

    tls = guarded(options.address(listen)[0], cert, key, client_ca)
    try:
        if tls is not None:
            tls.context()
    except CkptprofError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise


def _check(where: str, key: str, value: object) -> None:
    if key in _REMOVED:
        raise UsageError(f"{where}: {key} is no longer a setting", hint=_REMOVED[key])
    if key not in TYPES:
        near = get_close_matches(key, TYPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TYPES)}"
        raise UsageError(f"{where}: there is no setting {key!r}", hint=hint)
    try:
        msgspec.convert(value, TYPES[key], strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {key}: {_in_words(str(error))}") from error
    if key in _WORDS and value not in _WORDS[key]:
        raise UsageError(f"{where}: {key}: must be one of {', '.join(_WORDS[key])}, not {value!r}")


def _in_words(error: str) -> str:
    words = {"`str`": "a string in quotes", "`int`": "a whole number", "`float`": "a number", "`bool`": "true or false"}
    for name, word in words.items():
        error = error.replace(name, word)
    return error[:1].lower() + error[1:].replace(r" matching regex '^\\S+:[0-9]{1,5}$'", " of the form HOST:PORT")


def _line(text: str, key: str) -> int:
    """Return the line of a top-level key; of a table or dotted key the first line."""
    for number, line in enumerate(text.split("\n"), start=1):
        stripped = line.lstrip(" \t[\"'")
        if stripped.startswith(key) and stripped[len(key) :].lstrip(" \t\"'")[:1] in {"]", ".", "="}:
            return number
    return 1


def _load_file(context: typer.Context, path: Path | None) -> Path | None:
    """Use the file for the defaults of the other options; the service's file may be absent."""
    if path is not None and not context.resilient_parsing and (path != FILE or path.exists()):
        context.default_map = read(path)
    return path


def _config(default_help: str) -> Any:
    return options.option(
        "--config",
        "FILE",
        f"Settings file in TOML; options and the environment override it. {default_help}",
        is_eager=True,
        readable=False,
        callback=_load_file,
    )


Config = Annotated[Path | None, _config(f"Default: none; the service uses {FILE}.")]
ShownConfig = Annotated[Path, _config(f"Default: {FILE}.")]
Listen = Annotated[
    str | None,
    options.option("--listen", "HOST:PORT", "Address of /metrics. Default: 127.0.0.1:12578.", envvar="CKPTPROF_LISTEN"),
]
NoMetrics = Annotated[bool, typer.Option("--no-metrics", help="Do not serve /metrics.")]
Metrics = Annotated[
    Literal["full", "minimal"],
    typer.Option(
        "--metrics",
        help="Content of /metrics: `minimal` covers only checkpoints and ckptprof itself, with at most 60 series.",
    ),
]
JobNames = Annotated[
    bool,
    typer.Option("--job-names/--no-job-names", help="Include the names of the last 16 jobs and runs in /metrics."),
]


def _file(name: str, text: str) -> Any:
    # no check by access(2): the service reads root-only files by capability
    return options.option(name, "FILE", text, readable=False)


TlsCert = Annotated[Path | None, _file("--tls-cert", "PEM: certificate of /metrics, required beyond loopback.")]
TlsKey = Annotated[Path | None, _file("--tls-key", "PEM: its key.")]
ClientCa = Annotated[Path | None, _file("--client-ca", "PEM: authority of clients that may read /metrics.")]
Textfile = Annotated[
    Path | None,
    options.option(
        "--textfile", "DIR", "Write the metrics to DIR/ckptprof.prom as well, for node_exporter's textfile collector."
    ),
]


def _web_config(value: str | None) -> None:
    if value is not None:
        raise UsageError("--web-config is no longer an option", hint=_REMOVED["web_config"])


WebConfig = Annotated[str | None, typer.Option("--web-config", hidden=True, callback=_web_config)]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        metavar="HZ",
        parser=options.number_between("--rate", _LEAST_HZ, _MOST_HZ),
        help="Samples per second of training processes; 2.5 times as many while one transfers data.",
    ),
]
CpuBudget = Annotated[
    float,
    typer.Option(
        "--cpu-budget",
        metavar="PERCENT",
        parser=options.number_between("--cpu-budget", _LEAST_BUDGET, _MOST_BUDGET),
        help="Maximum CPU time over 10 minutes, in percent of one core; above it work is left out and reported.",
    ),
]
TimelineDays = Annotated[
    int,
    typer.Option(
        "--timeline-days",
        metavar="N",
        parser=options.whole_number("--timeline-days", least=_LEAST_DAYS, most=_MOST_DAYS),
        help="Days to retain raw samples.",
    ),
]
MaxBytes = Annotated[
    int,
    typer.Option(
        "--max-bytes",
        metavar="N",
        parser=options.whole_number("--max-bytes", least=LEAST_BYTES),
        help="Maximum size of the database; the oldest samples are deleted first, checkpoints last.",
    ),
]
