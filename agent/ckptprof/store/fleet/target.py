"""The server of a fleet by its URL: address and TLS options, never a secret.

A password comes from $CREDENTIALS_DIRECTORY (systemd's LoadCredential=), from a file that its owner alone may read, or
from libpq's own ~/.pgpass, which has the same rule; never from arguments or the environment, which others can see.
"""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from ckptprof.errors import StoreError, UsageError

SCHEME = "postgresql+psycopg"
PASSWORD_CREDENTIAL = "ckptprof-password"  # noqa: S105 # a name
_URL_HINT = f"give {SCHEME}://ROLE@HOST/DATABASE"
_URL_OPTIONS = ("host", "port", "sslcert", "sslkey", "sslmode", "sslrootcert", "sslcrl")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_PASSWORD_BYTES = 4096  # bytes
_CA_BUNDLES = (  # of Debian and SUSE, and of Red Hat
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
)


class ServerUnreachableError(StoreError):
    """The server cannot be reached, or closed the connection; a retry may succeed."""

    def __init__(self, message: str, *, hint: str | None = None, retry_after_seconds: float = 0.0) -> None:
        """`retry_after_seconds`: the server wants no request before that."""
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class ServerTarget(msgspec.Struct, frozen=True):
    """A PostgreSQL database, with the user."""

    url: str  # as it was given
    parameters: dict[str, str]  # of libpq, without a password


def parse_target(url: str) -> ServerTarget:
    """Parse a URL; raises UsageError for a password in it, and if the server would not be verified."""
    try:
        parts = urlsplit(url)
        port, options = (
            parts.port,
            dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))),
        )
    except ValueError:  # whose text includes the part after a colon, which may be a password
        raise UsageError("not a database URL", hint=_URL_HINT) from None
    if parts.password is not None or "password" in options or "@" in parts.path + parts.query + parts.fragment:
        raise UsageError(
            "a password in a URL can be read by every user of this host",
            hint="leave it out: put it into a file that its owner alone may read, or into the credential "
            f"{PASSWORD_CREDENTIAL}",
        )
    if parts.scheme != SCHEME:
        raise UsageError(f"{url}: a database of kind {parts.scheme!r} is not supported", hint=_URL_HINT)
    unknown = sorted(set(options) - set(_URL_OPTIONS))
    name = unquote(parts.path.lstrip("/"))
    if unknown or not name or parts.fragment:
        fault = f"the option {unknown[0]!r} is not known" if unknown else "it names no database"
        raise UsageError(f"{url}: {fault}", hint=f"{_URL_HINT}; options after a ? are {', '.join(_URL_OPTIONS)}")
    host = options.pop("host", None) or unquote(parts.hostname or "")
    if "," in host:  # libpq would ask each, and of the second one we know nothing
        raise UsageError(f"{url}: name one host", hint=_URL_HINT)
    parameters = {"dbname": name, **options}
    parameters |= {"host": host} if host else {}
    parameters |= {"user": unquote(parts.username)} if parts.username else {}
    parameters |= {"port": str(port)} if port else {}
    return ServerTarget(url, {**parameters, **_tls_parameters(host, options)})


def _tls_parameters(host: str, options: dict[str, str]) -> dict[str, str]:
    """TLS parameters; none for a Unix socket. Loopback needs no TLS if `sslmode` says so."""
    if not host or host.startswith("/"):
        return {}
    mode = options.get("sslmode", "verify-full")
    if mode != "verify-full" and host not in LOOPBACK:
        raise UsageError(f"sslmode={mode} does not verify who answers", hint="leave it out: it is verify-full")
    if mode != "verify-full" or "sslrootcert" in options:
        return {"sslmode": mode}
    return {"sslmode": mode, "sslrootcert": _ca_bundle()}


def _ca_bundle() -> str:
    """CA bundle of the host: the OpenSSL inside psycopg's wheel has no default one."""
    default_bundle = ssl.get_default_verify_paths().cafile
    return next(
        (path for path in (default_bundle, *_CA_BUNDLES) if path is not None and Path(path).is_file()), "system"
    )


def read_password(file: Path | None) -> str | None:
    """Read the password from a file, else from systemd's credentials; None: neither exists. Raises StoreError."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    credential = Path(folder) / PASSWORD_CREDENTIAL if file is None and folder else None
    try:
        if file is not None:
            return _read_first_line(file, is_private=True)
        return (
            _read_first_line(credential, is_private=False) if credential is not None and credential.exists() else None
        )
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text"
        raise StoreError(f"{file or credential}: {why}") from error


def _read_first_line(path: Path, *, is_private: bool) -> str:
    """Read the first line of a file; systemd protects its credentials by other means than their modes."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            raise StoreError(f"{path} is no file")
        if is_private and (state.st_mode & 0o077 or state.st_uid not in (0, os.geteuid())):
            raise StoreError(f"others may read the password in {path}", hint=f"chmod 600 {path}")
        line = os.read(fd, _MAX_PASSWORD_BYTES + 1).partition(b"\n")[0]
        if len(line) > _MAX_PASSWORD_BYTES:
            raise StoreError(f"the first line of {path} has more than {_MAX_PASSWORD_BYTES} bytes")
        return line.rstrip(b"\r").decode()
    finally:
        os.close(fd)


def clear_libpq_environment() -> None:
    """Remove libpq's variables from the environment: the target is in the URL, and a secret never here."""
    for name in [name for name in os.environ if name.startswith("PG") and name != "PGPASSFILE"]:
        del os.environ[name]
