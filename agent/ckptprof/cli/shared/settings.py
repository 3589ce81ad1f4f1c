"""The settings of the agent: what its options are, and where each value comes from.

An option wins over the environment, that over the file, and that over the default. click knows this order; here the
file becomes what click calls a map of defaults, once each key and type of it is known to be right.
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
_ADDRESS = msgspec.Meta(pattern=r"^\S+:[0-9]{1,5}$")
# What the file may say. `db` is not among them: the unit gives the service one place to write to.
TYPES: dict[str, Any] = {
    "level": str,
    "rate": Annotated[float, msgspec.Meta(ge=_LEAST_HZ, le=_MOST_HZ)],
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
# Settings of older versions, and what does their work now: to pass them over would open what they closed.
_GONE = {
    "web_config": "passwords and web.yml are gone; set tls_cert, tls_key and client_ca, or put a proxy before loopback",
}
_WORDS = {"level": ("auto", "trace", "poll"), "metrics": ("full", "minimal")}


def read(path: Path) -> dict[str, Any]:
    """Return the settings in a file; raises UsageError that names the line and the key which is wrong."""
    import msgspec.toml  # noqa: PLC0415 - for those who have a file

    try:
        with path.open("rb") as file:  # may be a device
            raw = file.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise UsageError(f"{path}: it has more than {_MOST_BYTES >> 10} KiB")
        text = raw.decode()
        table = msgspec.toml.decode(text, type=dict[str, Any])
    except OSError as error:
        raise CkptprofError(f"{path}: {error.strerror}", hint="`ckptprof service install` puts one in place") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: it is no UTF-8") from error
    except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors; a number may have too many digits
        raise UsageError(f"{path}: {error}", hint="it is TOML: `key = value`, texts in quotes") from error
    for key, value in table.items():
        _check(f"{path} line {_line(text, key)}", key, value)
    return table


def check() -> None:
    """Raise CkptprofError with what is wrong in the service's file, and in those that it names, if it is there."""
    found = read(FILE) if FILE.exists() else {}
    if not found.get("no_metrics", False):
        named = [Path(found[key]) if key in found else None for key in ("tls_cert", "tls_key", "client_ca")]
        check_served(found.get("listen"), *named)


def check_served(listen: str | None, cert: Path | None, key: Path | None, client_ca: Path | None) -> None:
    """Raise CkptprofError if metrics may not be served so, as far as this user may read the files."""
    from ckptprof.export.listening import guarded  # noqa: PLC0415 - ssl is for those who serve

    tls = guarded(options.address(listen)[0], cert, key, client_ca)
    try:
        if tls is not None:
            tls.context()
    except CkptprofError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise


def _check(where: str, key: str, value: object) -> None:
    if key in _GONE:
        raise UsageError(f"{where}: {key} is no setting any more", hint=_GONE[key])
    if key not in TYPES:
        near = get_close_matches(key, TYPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TYPES)}"
        raise UsageError(f"{where}: there is no setting {key!r}", hint=hint)
    try:
        msgspec.convert(value, TYPES[key], strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {key}: {_in_words(str(error))}") from error
    if key in _WORDS and value not in _WORDS[key]:
        raise UsageError(f"{where}: {key}: it is one of {', '.join(_WORDS[key])}, not {value!r}")


def _in_words(error: str) -> str:
    words = {"`str`": "a text in quotes", "`int`": "a whole number", "`float`": "a number", "`bool`": "true or false"}
    for name, word in words.items():
        error = error.replace(name, word)
    return error[:1].lower() + error[1:].replace(r" matching regex '^\\S+:[0-9]{1,5}$'", " of the form HOST:PORT")


def _line(text: str, key: str) -> int:
    """Return the line on which a key of the top level stands; a table or a dotted key counts from its first."""
    for number, line in enumerate(text.split("\n"), start=1):
        begin = line.lstrip(" \t[\"'")
        if begin.startswith(key) and begin[len(key) :].lstrip(" \t\"'")[:1] in {"]", ".", "="}:
            return number
    return 1


def _take(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file what the other options fall back on; that of the service need not be there."""
    if path is not None and not context.resilient_parsing and (path != FILE or path.exists()):
        context.default_map = read(path)
    return path


def _config(default_help: str) -> Any:
    return options.given(
        "--config",
        "FILE",
        f"The file of settings, in TOML; options and the environment win over it. {default_help}",
        is_eager=True,
        readable=False,
        callback=_take,
    )


Config = Annotated[Path | None, _config(f"Default: none; the service takes {FILE}.")]
ShownConfig = Annotated[Path, _config(f"Default: {FILE}.")]
Listen = Annotated[
    str | None,
    options.given(
        "--listen", "HOST:PORT", "The address that serves /metrics. Default: 127.0.0.1:12578.", envvar="CKPTPROF_LISTEN"
    ),
]
NoMetrics = Annotated[bool, typer.Option("--no-metrics", help="Do not serve /metrics.")]
Metrics = Annotated[
    Literal["full", "minimal"],
    typer.Option(
        "--metrics",
        help="What /metrics tells: `minimal` tells of checkpoints and of ckptprof itself alone, by 60 series at most.",
    ),
]
JobNames = Annotated[
    bool,
    typer.Option("--job-names/--no-job-names", help="Name the last 16 jobs and runs in /metrics, for all its readers."),
]


def _file(name: str, text: str) -> Any:
    # access(2) asks the mode alone: the service reads by its capability what is for root only
    return options.given(name, "FILE", text, readable=False)


TlsCert = Annotated[Path | None, _file("--tls-cert", "PEM: certificate of /metrics, needed beyond loopback.")]
TlsKey = Annotated[Path | None, _file("--tls-key", "PEM: its key.")]
ClientCa = Annotated[Path | None, _file("--client-ca", "PEM: authority of the clients that may read /metrics.")]
Textfile = Annotated[
    Path | None,
    options.given(
        "--textfile", "DIR", "Write the metrics to DIR/ckptprof.prom as well, for node_exporter's textfile collector."
    ),
]


def _web_config(value: str | None) -> None:
    if value is not None:
        raise UsageError("--web-config is no option any more", hint=_GONE["web_config"])


WebConfig = Annotated[str | None, typer.Option("--web-config", hidden=True, callback=_web_config)]
Rate = Annotated[
    float,
    typer.Option(
        "--rate",
        metavar="HZ",
        parser=options.between("--rate", _LEAST_HZ, _MOST_HZ),
        help="How often to read the processes that train, per second; 2.5 times as often while one moves data.",
    ),
]
TimelineDays = Annotated[
    int,
    typer.Option(
        "--timeline-days",
        metavar="N",
        parser=options.whole("--timeline-days", least=_LEAST_DAYS, most=_MOST_DAYS),
        help="How long raw samples are kept, in days.",
    ),
]
MaxBytes = Annotated[
    int,
    typer.Option(
        "--max-bytes",
        metavar="N",
        parser=options.whole("--max-bytes", least=LEAST_BYTES),
        help="How large the database may become; then the oldest samples go, and checkpoints last.",
    ),
]
