"""Text of the machine as valid UTF-8 and JSON: paths may be neither."""

from __future__ import annotations

from typing import Any


def encodable(text: str) -> str:
    r"""Return `text` with lone surrogates (of paths that are not UTF-8) written as `\udcNN`."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def all_encodable(value: object) -> Any:
    """Make every text in a document of dicts and lists encodable."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {encodable(str(key)): all_encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [all_encodable(item) for item in value]
    return value
