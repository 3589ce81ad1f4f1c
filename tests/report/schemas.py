"""Holds a document against its schema."""

from __future__ import annotations

import functools
from typing import Any

from jsonschema import Draft202012Validator

from ckptprof.cli.shared.schemas import schema


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    made = schema(name)
    Draft202012Validator.check_schema(made)
    return Draft202012Validator(made)


def validate(name: str, body: Any) -> None:
    """Raise where a document does not fit its schema."""
    _validator(name).validate(body)
