"""Protocol bugs on purpose, by name: what `swarmd sim ... --mutant NAME` switches on and `swarmd sim mutants` hunts.

Each entry replaces one function of the protocols by a broken one for the length of one run. An entry whose target has
gone is an error, so the catalogue follows the code. The checkers are told nothing about any of them.
"""

from collections.abc import Callable, Mapping
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
    """

    text: str
    target: str
    broken: Callable[[Any], Any]
    scenario: str = ""
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def apply(self) -> Callable[[], None]:
        """Switch it on; returns what switches it off."""
        module_name, _, path = self.target.partition(":")
        owner: Any = import_module(_P + module_name)
        *outer, name = path.split(".")
        for part in outer:
            owner = getattr(owner, part)
        sound = vars(owner)[name]
        is_property = isinstance(sound, property)
        setattr(owner, name, property(self.broken(sound.fget)) if is_property else self.broken(sound))

        def undo() -> None:
            setattr(owner, name, sound)

        return undo


def gives(value: Any) -> Callable[[Any], Any]:
    """A function that does nothing and always gives this (a fresh list for lists)."""

    def broken(_sound: Any) -> Any:
        return lambda *_args, **_kwargs: list(value) if isinstance(value, list) else value

    return broken


def _first_time_only(sound: Any) -> Any:
    seen: set[int] = set()

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) in seen:
            return None
        seen.add(id(self))
        return sound(self, *args, **kwargs)

    return broken


def _without_persist(sound: Any) -> Any:
    from swarmd_protocols.effects import Persist

    def broken(self: Any, effects: list[Any], *args: Any, **kwargs: Any) -> Any:
        result = sound(self, effects, *args, **kwargs)
        effects[:] = [effect for effect in effects if not isinstance(effect, Persist)]
        return result

    return broken


def _last_dropped(sound: Any) -> Any:
    def broken(*args: Any, **kwargs: Any) -> Any:
        return list(sound(*args, **kwargs))[:-1]

    return broken


def _half(sound: Any) -> Any:
    """Only every second call does its work."""
    count = [0]

    def broken(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        return sound(*args, **kwargs) if count[0] % 2 else None

    return broken


def _remove_whole_key(sound: Any) -> Any:
    def broken(self: Any, dot: Any) -> None:
        put = self._puts.get(dot)
        sound(self, dot)
        if put is not None:
            for other, held in list(self._puts.items()):
                if held.key == put.key:
                    self._removed[other] = self._removed.get(other, 0) + 1

    return broken


def _latest_arrival(sound: Any) -> Any:
    """What arrives last wins, whatever its dot says."""

    def broken(self: Any, origin: Any, row: Any, dot: Any) -> Any:
        old = self._entries.get(origin, {}).get(row.key)
        if old is not None:
            old.dot = (0, 0)
        return sound(self, origin, row, dot)

    return broken


def _scaled(factor_milli: int) -> Callable[[Any], Any]:
    def make(sound: Any) -> Any:
        def broken(*args: Any, **kwargs: Any) -> Any:
            return sound(*args, **kwargs) * factor_milli // 1_000

        return broken

    return make


def _raised_room(sound: Any) -> Any:
    def broken(parts: Any, room_bytes: int) -> Any:
        return sound(parts, room_bytes + 300)

    return broken


def _twice(sound: Any) -> Any:
    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = list(sound(self, *args, **kwargs))
        yield from found
        yield from found

    return broken


def _no_removals(sound: Any) -> Any:
    """News of a departure is taken for an ordinary sign of life."""

    def broken(self: Any, status: int, away_ns: int = 0) -> Any:
        return sound(self, 0, 0)

    return broken


def _dones_lost(sound: Any) -> Any:
    def broken(self: Any, origin: Any, dot: Any, facts: Any) -> Any:
        from dataclasses import fields, is_dataclass, replace

        if is_dataclass(facts) and "dones" in {item.name for item in fields(facts)}:
            facts = replace(facts, dones=())
        return sound(self, origin, dot, facts)

    return broken


SWIM: dict[str, Mutant] = {
    "swim-no-refute": Mutant("a suspect never answers", "swim.membership:Membership.refute", gives(None)),
    "swim-no-suspicion": Mutant("nobody is ever suspected", "swim.prober:Prober._suspect", gives(None)),
    "swim-no-fail": Mutant("suspects are never failed", "swim.membership:Membership.fail", gives(None)),
    "swim-no-rejoin": Mutant("lost members are never tried again", "swim.swim:Swim._rejoin", gives(None)),
    "swim-no-knock": Mutant("seeds are never asked", "swim.swim:Swim._knock", gives(None)),
    "swim-no-hello": Mutant("first contact is never answered", "swim.swim:Swim.on_hello", gives(None)),
    "swim-no-records": Mutant(
        "records of third members are dropped", "swim.membership:Membership.on_record", gives(None)
    ),
    "swim-no-alive": Mutant("newer records are dropped", "swim.membership:Membership.on_alive", gives(None)),
    "swim-no-later-life": Mutant(
        "a later life is not told that it was known", "swim.membership:Membership._on_own_record", gives(None)
    ),
    "swim-no-repair": Mutant("differing digests start no repair", "swim.repair:Repair.sections_due", gives(False)),
    "swim-no-fingerprints": Mutant("repair stops halfway", "swim.repair:Repair.on_fingerprints", gives(None)),
    "swim-no-want": Mutant("wanted items are not sent", "swim.repair:Repair.on_want", gives(None)),
    "swim-no-acks": Mutant("acks are not taken", "swim.prober:Prober.on_ack", gives(None)),
    "swim-fast-suspicion": Mutant(
        "no time to refute", "swim.prober:Prober._timeout_ns", gives(1), overrides={"radio.loss": 0.2}
    ),
    "swim-believes-silence": Mutant(
        "two lost pings are believed",
        "swim.prober:Prober._silence_is_believable",
        gives(True),
        overrides={"radio.loss": 0.25},
    ),
    "swim-one-attempt": Mutant(
        "one lost ping is enough", "swim.rules:attempts_needed", gives(1), overrides={"radio.loss": 0.25}
    ),
    "swim-refused-is-nothing": Mutant("a dead process is no evidence", "swim.swim:Swim.on_refused", gives(None)),
    "swim-no-events": Mutant("user events are not taken", "swim.shared:Shared.on_happening", gives(None)),
    "swim-no-event-repair": Mutant("lost events are not repaired", "swim.repair:Repair.on_heard", gives(None)),
    "swim-events-twice": Mutant("events are delivered twice", "dissemination:EventLog.due", _twice),
    "swim-leave-is-alive": Mutant("a good-bye is sent as alive", "swim.membership:Membership.set_status", _no_removals),
    "swim-one-probe": Mutant("probing stops after the first", "swim.prober:Prober._period", _first_time_only),
    "wire-overfull": Mutant("datagrams are packed too full", "wire:batched", _raised_room),
    "wire-no-summaries": Mutant("digests of sub-protocols are left out", "wire:Wire.sections", gives(None)),
    "node-no-peers": Mutant("sub-protocols learn of no peer", "node:Node._tell_peers", gives(None)),
}

STATE: dict[str, Mutant] = {
    "state-no-publish": Mutant(
        "facts are not told and not compared", "spread:Spread.ask_sync", gives([]), overrides={"radio.loss": 0.3}
    ),
    "state-no-summary": Mutant("summaries start no repair", "replica:Replica.on_summary", gives([])),
    "state-no-answer": Mutant("questions are not answered", "spread:Spread.answer_have", gives([])),
    "state-no-buckets": Mutant("buckets are not compared", "spread:Spread.answer_buckets", gives([])),
    "state-no-batches": Mutant("batches are not taken", "replica:Replica._on_batches", gives(None)),
    "state-half-batches": Mutant(
        "every second message of batches is dropped unseen", "replica:Replica._on_batches", _half
    ),
    "state-facts-not-persisted": Mutant("own facts are not written", "replica:Replica._flush", _without_persist),
    "state-records-not-persisted": Mutant("counters are not written", "replica:Replica._say_record", _without_persist),
    "state-no-restore": Mutant("the journal is not read", "replica:Replica._restore", gives(None)),
    "state-counters-restart": Mutant("counters start at nought", "replica:Replica._restore_counters", gives(None)),
    "state-same-incarnation": Mutant("every life uses the same dots", "replica:Replica._first_incarnation", gives(1)),
    "state-digest-blind": Mutant("the digest never changes", "crdt.store:Store.lasting_digest", gives(bytes(16))),
    "state-after-skips": Mutant("repairs leave out the last batch", "crdt.log:OriginLog.after", _last_dropped),
    "state-facts-cut": Mutant("the last fact of a batch is not folded", "crdt.ownlog:facts_of", _last_dropped),
    "state-dones-lost": Mutant("done cells are not folded", "fold:Fold._take_facts", _dones_lost),
    "state-no-facts": Mutant("others' facts are not folded", "fold:Fold._take_facts", gives(None)),
    "notes-remove-wins": Mutant("a removal removes unseen puts too", "crdt.notes:NoteMap.remove", _remove_whole_key),
    "dedup-latest-arrival": Mutant(
        "the row that arrives last wins",
        "dedup.view:DedupView.put",
        _latest_arrival,
        overrides={"site.site_map": False},
    ),
    "dedup-no-resign": Mutant(
        "a leader that is outranked stays",
        "dedup.view:DedupView._push_below",
        gives(None),
        overrides={"site.site_map": False},
    ),
    "dedup-everything-near": Mutant(
        "any two things are one",
        "dedup.view:DedupView._distance",
        gives(0),
        overrides={"site.site_map": False, "site.faults": 0.2},
    ),
    "claims-never-expire": Mutant(
        "a dead holder keeps its cell",
        "claims.config:ClaimConfig.observer_ns",
        gives(10**18),
        "solar-farm-20",
        {"checks.recall": 0.0},
    ),
    "claims-never-heard": Mutant(
        "others' claims are not heard", "claims.claims:Claims.hear", gives([]), "solar-farm-20", {"checks.recall": 0.0}
    ),
    "claims-never-yield": Mutant(
        "a loser works on",
        "claims.claims:Claims._must_yield",
        gives(False),
        "solar-farm-20",
        {"checks.recall": 0.0, "radio.loss": 0.3},
    ),
    "claims-no-choice": Mutant(
        "no cell is ever chosen", "claims.claims:Claims._choose", gives(None), "solar-farm-20", {"checks.recall": 0.0}
    ),
    "claims-short-lease": Mutant(
        "observers free a cell at once",
        "claims.config:ClaimConfig.observer_ns",
        _scaled(10),
        "solar-farm-20",
        {"checks.recall": 0.0},
    ),
}

MUTANTS: dict[str, Mutant] = {**SWIM, **STATE}
"""All mutants by name."""
