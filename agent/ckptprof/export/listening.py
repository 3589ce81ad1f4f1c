"""Addresses of metrics: plain HTTP on loopback, TLS with client certificates elsewhere."""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ckptprof.errors import CkptprofError, PermissionDeniedError, UsageError
from ckptprof_collectors.privileges import RAISED

# Ports 9100 to 9999 are allocated in the Prometheus wiki's "Default port allocations", and some above 10000. 12578 is
# CKPT on telephone keys (2578) plus 10000: below the kernel's ephemeral ports (32768), and not in Debian's
# /etc/services.
DEFAULT_PORT = 12578


@dataclass(frozen=True)
class Tls:
    """PEM files: server certificate, key, and the authority of client certificates."""

    cert: Path
    key: Path
    client_ca: Path

    def context(self) -> ssl.SSLContext:
        """Return a context that requires client certificates; raises CkptprofError for an unusable file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            with RAISED:  # the key may be readable only by root
                for file in (self.cert, self.key, self.client_ca):  # the errors of ssl do not name the file
                    file.open("rb").close()
                context.load_cert_chain(self.cert, self.key, password="")  # or a passphrase is read from the terminal
                context.load_verify_locations(self.client_ca)
        except ssl.SSLError as error:
            files = f"{self.cert}, {self.key} and {self.client_ca}"
            reason = "PEM files of a certificate, its key (without a passphrase) and an authority are required"
            raise CkptprofError(f"{files} cannot be used: {reason}") from error
        except OSError as error:
            readable = f"chgrp ckptprof {error.filename}; chmod 640 {error.filename}"
            hint = readable if isinstance(error, PermissionError) else None
            raise CkptprofError(f"{error.filename}: {error.strerror}", hint=hint) from error
        return context


def is_loopback(host: str) -> bool:
    """Test whether an address or a name is this host's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def guarded(host: str, cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """Return the TLS files for a host, None for plain HTTP; raises UsageError beyond loopback without all three."""
    files = {"tls_cert": cert, "tls_key": key, "client_ca": client_ca}
    if cert is not None and key is not None and client_ca is not None:
        return Tls(cert, key, client_ca)
    if any(files.values()):
        missing = ", ".join(name for name, file in files.items() if file is None)
        raise UsageError("tls_cert, tls_key and client_ca belong together", hint=f"set {missing} as well")
    if not is_loopback(host):
        raise UsageError(
            f"metrics on {host}: TLS with client certificates is required beyond loopback",
            hint="set tls_cert, tls_key and client_ca (--tls-cert, --tls-key, --client-ca); or listen on 127.0.0.1 "
            "behind a proxy; or use --textfile with node_exporter",
        )
    return None


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises CkptprofError if the address is not available."""
    if not 0 <= port <= 65535:
        raise CkptprofError(f"cannot serve metrics on {host} port {port}: a port is a number from 0 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=64)
    except (OSError, UnicodeError) as error:
        message = f"cannot serve metrics on {host} port {port}: {getattr(error, 'strerror', None) or error}"
        code = error.errno if isinstance(error, OSError) else None
        if code == errno.EADDRINUSE:
            hint = (
                f"`ss -ltnp 'sport = :{port}'` shows which program uses it; choose another port, or 0 for any free one"
            )
            raise CkptprofError(message, hint=hint) from error
        if code in {errno.EACCES, errno.EPERM}:
            raise PermissionDeniedError(message, hint="ports below 1024 need root; choose a higher one") from error
        raise CkptprofError(message, hint="give an address of this host, such as 127.0.0.1 or ::1") from error
