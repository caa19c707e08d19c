"""What an entry of the catalogue is."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

_P = "swarmd_protocols."


@dataclass(frozen=True)
class Mutant:
    """One bug.

    Attributes:
        text: What is broken.
        target: "module:Class.function" or "module:function", below `swarmd_protocols`.
        broken: Makes the broken function out of the sound one.
        scenario: Where to hunt it; "" is the fuzz scenario.
        overrides: Overrides of that scenario.
        more: Further targets that are broken with it, where one alone is made good by another.
    """

    text: str
    target: str
    broken: Callable[[Any], Any]
    scenario: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[tuple[str, Callable[[Any], Any]], ...] = ()

    def apply(self) -> Callable[[], None]:
        """Switch it on; returns what switches it off."""
        with ExitStack() as undone:  # A target that has gone leaves the others as they were.
            for target, broken in ((self.target, self.broken), *self.more):
                undone.callback(_replace(target, broken))
            return undone.pop_all().close


def _replace(target: str, broken: Callable[[Any], Any]) -> Callable[[], None]:
    module_name, _, path = target.partition(":")
    owner: Any = import_module(_P + module_name)
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    sound = vars(owner)[name]
    setattr(owner, name, property(broken(sound.fget)) if isinstance(sound, property) else broken(sound))
    return lambda: setattr(owner, name, sound)
