"""Text of the machine as valid UTF-8 and JSON: a path need not be either."""

from __future__ import annotations

from typing import Any


def encodable(text: str) -> str:
    r"""Return `text` with lone surrogates, of paths that are no UTF-8, written as `\udcNN`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_encodable(value: object) -> Any:
    """Return a document of dicts and lists with every text in it encodable."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(str(key)): all_encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_encodable(item) for item in value]
    return value
