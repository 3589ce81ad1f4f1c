"""Where metrics may be served: in the clear on loopback, and to clients with a certificate anywhere else."""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from ckptprof.errors import CkptprofError, PermissionDeniedError, UsageError

# Every port from 9100 to 9999 is given away in the Prometheus wiki's "Default port allocations", which went on past
# 10000. 12578 is CKPT on the keys of a telephone (2578) above that, below the kernel's ephemeral ports (32768), and
# not in Debian's /etc/services.
DEFAULT_PORT = 12578


@dataclass(frozen=True)
class Tls:
    """PEM files: the certificate of the server, its key, and the authority whose clients may connect."""

    cert: Path
    key: Path
    client_ca: Path

    def context(self) -> ssl.SSLContext:
        """Return a context that requires a client certificate; raises CkptprofError if a file cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            for file in (self.cert, self.key, self.client_ca):  # the errors of ssl do not name the file
                file.open("rb").close()
            context.load_cert_chain(self.cert, self.key, password="")  # or a passphrase would be read from the terminal
            context.load_verify_locations(self.client_ca)
        except ssl.SSLError as error:
            files = f"{self.cert}, {self.key} and {self.client_ca}"
            reason = "PEM files of a certificate, of its key (without a passphrase), and of an authority are needed"
            raise CkptprofError(f"{files} cannot be used: {reason}") from error
        except OSError as error:
            readable = f"chgrp ckptprof {error.filename}; chmod 640 {error.filename}"
            hint = readable if isinstance(error, PermissionError) else None
            raise CkptprofError(f"{error.filename}: {error.strerror}", hint=hint) from error
        return context


def guarded(host: str, cert: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """Return how to serve on a host, None for in the clear; raises UsageError beyond loopback without all three."""
    files = {"tls_cert": cert, "tls_key": key, "client_ca": client_ca}
    if cert is not None and key is not None and client_ca is not None:
        return Tls(cert, key, client_ca)
    if any(files.values()):
        missing = ", ".join(name for name, file in files.items() if file is None)
        raise UsageError("tls_cert, tls_key and client_ca belong together", hint=f"set {missing} as well")
    try:
        is_loopback = ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback:
        raise UsageError(
            f"metrics on {host}: beyond loopback they are served to clients with a certificate only",
            hint="set tls_cert, tls_key and client_ca (--tls-cert, --tls-key, --client-ca); or listen on 127.0.0.1 "
            "behind a proxy; or use --textfile beside node_exporter",
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
            hint = f"`ss -ltnp 'sport = :{port}'` says who has it; choose another port, or 0 for any free one"
            raise CkptprofError(message, hint=hint) from error
        if code in {errno.EACCES, errno.EPERM}:
            raise PermissionDeniedError(message, hint="ports under 1024 are root's; choose a higher one") from error
        raise CkptprofError(message, hint="give an address of this host, such as 127.0.0.1 or ::1") from error
