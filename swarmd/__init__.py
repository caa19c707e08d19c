"""The daemon on each device of a swarm: captures, infers, gossips, agrees. What programs may ask it: `client.py`."""

TYPE_CHECKING = False
"""Type checkers take it for true. To import it from `typing` costs `swarmd --help` a tenth of its time."""

if TYPE_CHECKING:
    from swarmd.client import Changes, Node, connect, simulate
    from swarmd.errors import ControlError, DaemonError, WorkerError
    from swarmd.records import (
        Cell,
        Change,
        Detection,
        Event,
        Heard,
        Inferred,
        Member,
        Object,
        Position,
        Review,
        Seen,
        Sighting,
        Simulated,
        Status,
    )

__version__ = "0.1.0"

__all__ = [
    "Cell",
    "Change",
    "Changes",
    "ControlError",
    "DaemonError",
    "Detection",
    "Event",
    "Heard",
    "Inferred",
    "Member",
    "Node",
    "Object",
    "Position",
    "Review",
    "Seen",
    "Sighting",
    "Simulated",
    "Status",
    "WorkerError",
    "connect",
    "simulate",
]


def __getattr__(name: str) -> object:
    # The daemon imports this package too, and has no use for its own client.
    if name not in __all__:
        raise AttributeError(f"module 'swarmd' has no attribute {name!r}")
    from swarmd import client, errors, records

    place = next(module for module in (client, records, errors) if hasattr(module, name))
    return getattr(place, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
