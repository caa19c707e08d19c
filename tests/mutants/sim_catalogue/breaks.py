"""How a mutant breaks: each of these makes a broken function out of the sound one, or gives what makes it."""

from collections.abc import Callable
from typing import Any

import msgspec

from swarmd_protocols.state.crdt.facts import Facts


def gives(value: Any) -> Callable[[Any], Any]:
    """A function that does nothing and always gives this (a fresh list for lists)."""

    def broken(_sound: Any) -> Any:
        return lambda *_args, **_kwargs: list(value) if isinstance(value, list) else value

    return broken


def first_time_only(sound: Any) -> Any:
    seen: set[int] = set()

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        if id(self) in seen:
            return None
        seen.add(id(self))
        return sound(self, *args, **kwargs)

    return broken


def without_persist(sound: Any) -> Any:
    from swarmd_protocols.effects import Persist

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = sound(self, *args, **kwargs)
        effects = next(argument for argument in args if isinstance(argument, list))
        effects[:] = [effect for effect in effects if not isinstance(effect, Persist)]
        return result

    return broken


def last_dropped(sound: Any) -> Any:
    def broken(*args: Any, **kwargs: Any) -> Any:
        return list(sound(*args, **kwargs))[:-1]

    return broken


def remove_whole_key(sound: Any) -> Any:
    def broken(self: Any, dot: Any, stamp: int, by: Any = None) -> None:
        sound(self, dot, stamp, by)
        for key in [put.key for put in self._said.get(dot, ())]:
            for dots in self._under.get(key, {}).values():
                for other in dots:
                    sound(self, other, 1 << 62)

    return broken


def latest_arrival(sound: Any) -> Any:
    """What arrives last wins, whatever its dot says."""

    def broken(self: Any, origin: Any, row: Any, dot: Any) -> Any:
        old = self.get(origin, row.key)
        if old is not None:
            old.dot = (0, 0)
        return sound(self, origin, row, dot)

    return broken


def scaled(factor_milli: int) -> Callable[[Any], Any]:
    def make(sound: Any) -> Any:
        def broken(*args: Any, **kwargs: Any) -> Any:
            return sound(*args, **kwargs) * factor_milli // 1_000

        return broken

    return make


def twice(sound: Any) -> Any:
    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = list(sound(self, *args, **kwargs))
        yield from found
        yield from found

    return broken


def no_removals(sound: Any) -> Any:
    """News of a departure is taken for an ordinary sign of life."""

    def broken(self: Any, status: int, away_ns: int = 0) -> Any:
        return sound(self, 0, 0)

    return broken


def dones_lost(sound: Any) -> Any:
    def broken(self: Any, origin: Any, dot: Any, facts: Any) -> Any:
        if isinstance(facts, Facts):
            facts = msgspec.structs.replace(facts, dones=())
        return sound(self, origin, dot, facts)

    return broken


def counters_lost(sound: Any) -> Any:
    """The record is found and superseded, but what it counted is not taken over."""

    def broken(self: Any) -> None:
        sound(self)
        self.counters.clear()

    return broken


def gaps_skipped(_sound: Any) -> Any:
    def broken(self: Any, incarnation: int) -> None:
        held = [dot[1] for dot in self.facts if dot[0] == incarnation]
        self.frontier[incarnation] = max([self.frontier.get(incarnation, 0), *held])

    return broken


def fails_at_once(_sound: Any) -> Any:
    def broken(self: Any, probe: Any) -> bool:
        self.membership.fail(probe.member, "silent")
        return True

    return broken


def not_journalled(sound: Any) -> Any:
    def broken(self: Any, batch: Any) -> None:
        before = dict(self._unjournalled)
        sound(self, batch)
        self._unjournalled = before

    return broken


def unhalted(sound: Any) -> Any:
    def broken(*args: Any, **kwargs: Any) -> Any:
        from dataclasses import replace

        return replace(sound(*args, **kwargs), halted=False)

    return broken


def left_for_good(sound: Any) -> Any:
    def broken(self: Any, model: str, leave: bytes, *rest: Any) -> Any:
        effects = sound(self, model, leave, *rest)
        self.local[model].started.add(leave)
        return effects

    return broken


def without_check(name: str) -> Callable[[Any], Any]:
    return lambda checks: tuple(check for check in checks if check.__name__ != name)


def unsigned_report(_sound: Any) -> Any:
    def broken(envelope: Any, _verify: Any) -> Any:
        from swarmd_protocols.releases.reports import parse_report

        return parse_report(envelope.payload)

    return broken


def any_signature(_sound: Any) -> Any:
    return lambda envelope, keys, _verify: frozenset(key for key, _ in envelope.signatures if key in keys)


def any_role(_sound: Any) -> Any:
    return lambda link, _role: (dict(link.keys), 1)


def newest_only(_sound: Any) -> Any:
    def counts(self: Any, verified: Any) -> bool:
        from swarmd_protocols.trust.envelopes import ROLE_OF

        role = ROLE_OF.get(verified.kind, "")
        held: bool = self.current.has_threshold([key for key, _ in verified.signatures], role)
        return held

    return counts


def latest_only(_sound: Any) -> Any:
    def at(self: Any, address: str) -> tuple[Any, ...]:
        latest = self.by_address.get(address)
        return () if latest is None else (latest,)

    return at


def deaf_after_noise(sound: Any) -> Any:
    heard_ns: dict[int, int] = {}

    def take(self: Any, source: Any, kind: Any, frame: Any, now_ns: int) -> Any:
        if now_ns - heard_ns.setdefault(id(self), now_ns) < 1_000_000_000:
            heard_ns[id(self)] = now_ns
            return None
        try:
            return sound(self, source, kind, frame, now_ns)
        except Exception:
            heard_ns[id(self)] = now_ns
            raise

    return take


def waits_unbounded(_sound: Any) -> Any:
    def wait(self: Any, sender: Any, batch: Any, now_ns: int) -> bool:
        self._waiting[batch.digest] = (sender, batch, now_ns)
        return True

    return wait


def endless_volumes(sound: Any) -> Any:
    def broken(self: Any) -> None:
        sound(self)
        self.volumes._full = self.volumes._burst = 1 << 80
        self.relays.may_send = self.relays.spend = lambda *_args: True

    return broken


def dropped_in_silence(_sound: Any) -> Any:
    """A job that is held ends as its time comes, and nobody is told."""

    def broken(self: Any, job: int, now_ns: int) -> Any:
        one = self._jobs.get(job)
        return self._end([job]) if one is not None and one.held is not None else []

    return broken


def trust_unwritten(sound: Any) -> Any:
    from swarmd_protocols.effects import Persist

    def broken(self: Any, kind: str, statement: bytes) -> None:
        sound(self, kind, statement)
        self.effects[:] = [
            effect
            for effect in self.effects
            if not (isinstance(effect, Persist) and effect.key.startswith(b"node/trust/revoke/"))
        ]

    return broken


def still_shown(sound: Any) -> Any:
    def broken(self: Any, batch: Any) -> None:
        self.deferred.pop(batch.digest, None)

    return broken
