"""Who may ask for the metrics, and over what: the `web.yml` of the Prometheus exporter toolkit.

The names in the file are those of the convention (`tls_server_config`, `basic_auth_users`), so one file serves every
exporter of a host. What we do not do is refused by name, and never ignored: a setting without effect is no protection.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ckptprof.errors import CkptprofError
from ckptprof.export.passwords import BCRYPT

_TLS = "tls_server_config"
_USERS = "basic_auth_users"
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_FILES = ("cert_file", "key_file", "client_ca_file")
_CHOICES: Mapping[str, Mapping[str, object]] = {
    "min_version": _VERSIONS, "max_version": _VERSIONS, "client_auth_type": _CLIENTS
}  # fmt: skip


@dataclass(frozen=True)
class WebConfig:
    """What the file says; `tls` is None where the metrics are served in the clear, `users` empty without passwords."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=dict)  # name -> bcrypt hash
    files: tuple[Path, ...] = ()  # what it was read from


def load(path: Path) -> WebConfig:
    """Read the file and what it names; raises CkptprofError with path, line and key of what is wrong."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise CkptprofError(f"{path}: {error.strerror}", hint=_readable(error)) from error
    except UnicodeDecodeError as error:
        raise CkptprofError(f"{path}: it is no UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        raise CkptprofError(f"{path} line {line}: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise CkptprofError(f"{path}: it is no YAML") from error
    tls: dict[str, str] = {}
    users: dict[str, str] = {}
    for key, value in _entries(path, root, (_TLS, _USERS)):
        (tls if key == _TLS else users).update(_section(path, key, value))
    files = tuple(path.parent / tls[name] for name in _FILES if name in tls)
    return WebConfig(_context(path, tls) if tls else None, users, (path, *files))


def check(path: Path) -> None:
    """Raise CkptprofError with what is wrong in the file, as far as whoever asks may read it and what it names."""
    try:
        load(path)
    except CkptprofError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise


def state(files: tuple[Path, ...]) -> tuple[object, ...]:
    """Return what changes when one of the files does: a renewed certificate counts from the next connection on."""
    return tuple(_stamp(file) for file in files)


def _stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino


def _section(path: Path, section: str, node: yaml.Node) -> Iterator[tuple[str, str]]:
    for key, value in _entries(path, node, (*_FILES, *_CHOICES) if section == _TLS else None):
        where = f"{path} line {value.start_mark.line + 1}: {section}.{key}"
        if not isinstance(value, yaml.ScalarNode) or not value.value:
            raise CkptprofError(f"{where} is not a text")
        if key in _CHOICES and section == _TLS and value.value not in _CHOICES[key]:
            raise CkptprofError(f"{where} is {value.value!r}", hint=f"one of {', '.join(_CHOICES[key])}")
        if section == _USERS and not BCRYPT.fullmatch(value.value):
            raise CkptprofError(
                f"{where} is no bcrypt hash of a cost from 4 to 15",
                hint="`htpasswd -nBC 10 USER` (apache2-utils) makes one",
            )
        yield key, value.value


def _entries(path: Path, node: yaml.Node | None, known: tuple[str, ...] | None) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a mapping, of these names only; an empty one has none."""
    if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
        return
    if not isinstance(node, yaml.MappingNode):
        raise CkptprofError(f"{path} line {node.start_mark.line + 1}: names with values belong here, as in `a: b`")
    for key, value in node.value:
        if known is not None and key.value not in known:
            raise CkptprofError(
                f"{path} line {key.start_mark.line + 1}: {key.value!r} is not supported",
                hint=f"known: {', '.join(known)}",
            )
        yield str(key.value), value


def _context(path: Path, tls: Mapping[str, str]) -> ssl.SSLContext:
    missing = [name for name in ("cert_file", "key_file") if name not in tls]
    if missing:
        raise CkptprofError(f"{path}: {_TLS} has no {missing[0]}")
    clients = _CLIENTS[tls.get("client_auth_type", "NoClientCert")]
    if (clients is not ssl.CERT_NONE) != ("client_ca_file" in tls):
        raise CkptprofError(f"{path}: client_ca_file and a client_auth_type that verifies need each other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.get("min_version", "TLS12")]
    context.maximum_version = _VERSIONS.get(tls.get("max_version", ""), ssl.TLSVersion.MAXIMUM_SUPPORTED)
    try:
        context.load_cert_chain(_at(path, tls["cert_file"]), _at(path, tls["key_file"]), _no_passphrase)
        if clients is not ssl.CERT_NONE:
            context.load_verify_locations(_at(path, tls["client_ca_file"]))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, ssl.SSLError):
            reason = "they are no PEM files of a certificate and of the key that belongs to it"
        raise CkptprofError(f"{path}: certificate and key cannot be used: {reason}", hint=_readable(error)) from error
    context.verify_mode = clients
    return context


def _at(path: Path, name: str) -> str:
    """Return the path of a file that the configuration names; raises OSError if it cannot be read."""
    file = path.parent / name
    with file.open("rb"):
        return os.fspath(file)


def _no_passphrase() -> str:
    """Refuse a key with a passphrase, for which OpenSSL would ask the terminal."""
    raise ValueError("the key has a passphrase")


def _readable(error: Exception) -> str | None:
    if not isinstance(error, PermissionError):
        return None
    return "the user that runs the agent must be able to read it: `chgrp ckptprof FILE; chmod 640 FILE`"
