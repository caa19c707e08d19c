"""How one key of the configuration is declared."""

import dataclasses
from typing import Any


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] = (),
    length: int | None = None,
    reload: bool = False,
    flag: str = "",
) -> Any:
    """Declare one key of a section.

    Args:
        default: The value when nobody sets it; immutable.
        doc: One sentence for the reference page, ending in a full stop.
        low: Inclusive lower bound of a number.
        high: Inclusive upper bound of a number.
        choices: The only strings allowed.
        length: Number of elements of a tuple, when it is set at all.
        reload: True when SIGHUP applies a change to the running daemon.
        flag: The flag of `swarmd run` that sets it, such as "--listen".

    Returns:
        A dataclass field.
    """
    meta = {"doc": doc, "low": low, "high": high, "choices": choices, "length": length, "reload": reload, "flag": flag}
    return dataclasses.field(default=default, metadata=meta)
