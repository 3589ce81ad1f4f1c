"""ckptprof: the flight recorder of AI checkpoints. `ckptprof.open()` reads what was recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckptprof.export.database import Database as open  # noqa: A004, N813 # as in `gzip.open`

__all__ = ["open"]
__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> Any:
    if name != "open":
        raise AttributeError(name)
    from ckptprof.export.database import Database  # noqa: PLC0415 # 0.1 s that commands do not need

    return Database
