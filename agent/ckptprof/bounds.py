"""Value ranges for JSON schemas only: recorded values are not validated against them."""

from __future__ import annotations

from typing import Annotated

import msgspec


def one_of(*words: str) -> msgspec.Meta:
    """Return the constraint of an enumeration of these words."""
    return msgspec.Meta(extra_json_schema={"enum": list(words)})


_LEAST = {"minimum": 0}
Count = Annotated[int, msgspec.Meta(extra_json_schema=_LEAST)]
Amount = Annotated[float, msgspec.Meta(extra_json_schema=_LEAST)]
Share = Annotated[float, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": 1})]
Nullable = Annotated[float, msgspec.Meta(extra_json_schema={"anyOf": [{"type": "number"}, {"type": "null"}]})]
_PAIR = {"type": "array", "prefixItems": [_LEAST | {"type": "integer"}] * 2, "minItems": 2, "maxItems": 2}
_DECIMAL = "^[0-9]+$"
Histogram = Annotated[
    dict[str, list[int]],
    msgspec.Meta(extra_json_schema={"propertyNames": {"pattern": _DECIMAL}, "patternProperties": {_DECIMAL: _PAIR}}),
]
