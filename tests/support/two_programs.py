"""Nodes of an older revision beside this tree's in one simulated swarm: the protocols of both in one process.

The older tree's packages are imported while this tree's are out of `sys.modules`, and taken out again: what was
imported keeps its own modules. Its `NodeFactory` builds its nodes, so that a constructor may change between revisions.
What crosses the border (events in, effects out, the rows of the membership) are structs and enums of the one import,
made anew as those of the other by module and name; bytes are bytes. A kind of value that the other import does not have
raises; a field that it does not have is left out.
"""

import dataclasses
import importlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from swarmd_protocols import errors
from swarmd_protocols.effects import DatagramReceived, Effect, Event, StreamReceived
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.host import Host, NodeLike
from swarmd_sim.run.node_factory import NodeFactory
from swarmd_sim.run.sections import Scenario

ROOMS = {"swarmd_protocols": "protocols", "swarmd_models": "models", "swarmd_sim": "sim"}
"""Package to the folder of a tree that holds it."""


def _ours() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ROOMS}


@contextmanager
def _set_aside(rooms: list[str]) -> Iterator[None]:
    """Imports come from other folders, and this tree's modules stay as they are."""
    kept = _ours()
    for name in kept:
        del sys.modules[name]
    sys.path[:0] = rooms
    try:
        yield
    finally:
        del sys.path[: len(rooms)]
        for name in _ours():
            del sys.modules[name]
        sys.modules.update(kept)


class Program:
    """The protocols and the node factory of a tree.

    Args:
        tree: Where it lies (`older.lay_out`).
    """

    def __init__(self, tree: Path) -> None:
        with _set_aside([str(tree / room) for room in ROOMS.values()]):
            self.factory: Callable[[Scenario, Choices, list[str]], Any] = importlib.import_module(
                "swarmd_sim.run.node_factory"
            ).NodeFactory
            self.modules = _ours()
        for module in self.modules.values():
            assert str(module.__file__).startswith(str(tree)), module


class Words:
    """Makes values of one import anew as another's.

    Args:
        modules: The other import's, by name.
    """

    def __init__(self, modules: Mapping[str, ModuleType]) -> None:
        self._modules = modules
        self._ways: dict[type, Callable[[Any], Any]] = {}

    def __call__(self, value: Any) -> Any:
        """The same value, in the other's words."""
        kind = type(value)
        way = self._ways.get(kind)
        if way is None:
            way = self._ways[kind] = self._way(kind)
        return way(value)

    def _way(self, kind: type) -> Callable[[Any], Any]:
        if kind in (tuple, list, set, frozenset):
            return lambda value: kind(map(self, value))
        if kind is dict:
            return lambda value: {self(key): self(one) for key, one in value.items()}
        if kind.__module__.partition(".")[0] not in ROOMS:
            return lambda value: value
        other: Any = self._modules[kind.__module__]
        for name in kind.__qualname__.split("."):
            other = getattr(other, name)
        if issubclass(kind, Enum):
            return lambda value: other[value.name]
        names = [name for name in _fields(kind) if name in _fields(other)]
        return lambda value: other(**{name: self(getattr(value, name)) for name in names})


def _fields(kind: Any) -> Collection[str]:
    if issubclass(kind, msgspec.Struct):
        return [one.name for one in msgspec.structs.fields(kind)]
    return [one.name for one in dataclasses.fields(kind)]


class OlderNode:
    """A node of the older program in a host of this one."""

    def __init__(self, node: Any, to_old: Words, to_new: Words) -> None:
        self._node = node
        self._to_old, self._to_new = to_old, to_new

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def members(self) -> list[Any]:
        """As a node of this tree says it."""
        return [self._to_new(row) for row in self._node.members()]

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """One event in, effects out; a refusal is this tree's."""
        try:
            return [self._to_new(effect) for effect in self._node.handle(self._to_old(event), now_ns)]
        except Exception as error:
            raise getattr(errors, type(error).__name__, type(error))(*error.args) from error


class Deaf:
    """A node of this tree that does not read what nodes of the older program send: a broken upgrade, on purpose."""

    def __init__(self, node: Any, older: Callable[[str], bool]) -> None:
        self._node = node
        self._older = older

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def handle(self, event: Event, now_ns: int) -> list[Effect]:
        """As the node would, had the frame not come."""
        if isinstance(event, DatagramReceived | StreamReceived) and self._older(event.source):
            return []
        effects: list[Effect] = self._node.handle(event, now_ns)
        return effects


class Rolling:
    """Builds the nodes of a swarm that is upgraded: some hosts' first life is the older program's, any later one ours.

    Args:
        program: The older one.
        first: Indices of the hosts that begin with it.
        deaf: Whether our nodes do not hear the older ones.
    """

    def __init__(self, program: Program, first: Collection[int], *, deaf: bool = False) -> None:
        self._program = program
        self._first = frozenset(first)
        self._deaf = deaf
        self.lives: dict[int, list[str]] = {}
        """What each host ran, life by life: "older" or "this"."""

    def __call__(self, scenario: Scenario, choices: Choices, addresses: list[str]) -> "Rolling":
        """Begin a run (`Options.maker`)."""
        self._ours = NodeFactory(scenario, choices, addresses)
        self._theirs = self._program.factory(scenario, choices, addresses)
        self._to_old, self._to_new = Words(self._program.modules), Words(_ours())
        self._index = {address: index for index, address in enumerate(addresses)}
        self.officers = self._ours.officers
        self.replicas: dict[int, Any] = {}
        return self

    def become_rogue(self, host: Host) -> None:
        """No thief here."""
        raise AssertionError(host)

    def runs_older(self, address: str) -> bool:
        """Whether the host at an address runs the older program just now."""
        lives = self.lives.get(self._index.get(address, -1), [""])
        return lives[-1] == "older"

    def make(self, host: Host) -> NodeLike:
        """The node of the life that begins."""
        lives = self.lives.setdefault(host.index, [])
        is_older = host.index in self._first and not lives
        lives.append("older" if is_older else "this")
        factory: Any = self._theirs if is_older else self._ours
        node = factory.make(host)
        self.replicas[host.index] = factory.replicas[host.index]
        if is_older:
            return OlderNode(node, self._to_old, self._to_new)
        return Deaf(node, self.runs_older) if self._deaf else node
