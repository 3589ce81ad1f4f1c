"""Names and passwords of HTTP's basic authentication, checked against bcrypt hashes at a cost that is bounded."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import time
from collections.abc import Mapping
from enum import Enum

# A cost of 15 takes seconds for each password, and one of 31 a day
BCRYPT = re.compile(r"\$2[aby]\$(?:0[4-9]|1[0-5])\$[./A-Za-z0-9]{53}")
# Of no password: who asks for a user that is not there waits as long as for one that is
_NOBODY = "$2b$10$" + "." * 53
_CHECK_SECONDS = 0.5  # between two passwords that are not known yet: bcrypt takes 0.05 s and more of CPU, on purpose
_LONGEST_BYTES = 72  # bcrypt looks at no more


class Access(Enum):
    """What came of a password."""

    GRANTED = "granted"
    REFUSED = "refused"
    LATER = "later"


class Passwords:
    """Remembers who was let in, so that a scraper costs one bcrypt and not one a scrape."""

    def __init__(self) -> None:
        """Nobody was let in yet."""
        self._key = os.urandom(32)
        self._known: set[bytes] = set()  # at most one for each user and hash
        self._checked_at = -_CHECK_SECONDS

    def check(self, users: Mapping[str, str], authorization: str) -> Access:
        """Judge an Authorization field; LATER where one that was not known was checked just before."""
        found = _basic(authorization)
        if found is None:
            return Access.REFUSED
        name, password = found
        stored = users.get(name)
        token = hmac.digest(self._key, b"\0".join((name.encode(), (stored or "").encode(), password)), hashlib.sha256)
        if stored is not None and token in self._known:
            return Access.GRANTED
        now = time.monotonic()
        if now - self._checked_at < _CHECK_SECONDS:
            return Access.LATER
        import bcrypt  # noqa: PLC0415 - where there are passwords only

        try:
            good = bcrypt.checkpw(password[:_LONGEST_BYTES], (stored or _NOBODY).encode())
        except ValueError:  # a NUL, which no password has
            good = False
        self._checked_at = time.monotonic()
        if stored is None or not good:
            return Access.REFUSED
        if len(self._known) > len(users):  # of hashes that are no more
            self._known.clear()
        self._known.add(token)
        return Access.GRANTED


def _basic(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except ValueError:  # no ASCII, no base64 or no UTF-8
        return None
