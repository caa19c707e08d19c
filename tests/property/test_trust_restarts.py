"""Half done: restarts between any two statements, and journals that come back torn, change nothing that is decided."""

import random
from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Persist
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.messages import Push, encode_message
from swarmd_protocols.releases.releases import Releases, ReleasesConfig
from swarmd_protocols.swim.sender import trust_key
from swarmd_protocols.trust.identity import Identity, open_trust
from swarmd_protocols.trust.payloads import GroupKey
from swarmd_protocols.trust.trust import TRUST_JOURNAL
from tests.support.release_world import MODEL
from tests.support.trust_history import (
    AFTER,
    ALWAYS,
    CRYPTO,
    FIRST,
    FOURTH,
    GROUPS,
    HONEST,
    NODES,
    OUT,
    SECOND,
    SWARM,
    THIRD,
    Hearer,
    Item,
    certificate,
    node,
    say,
)

WHOLE = Hearer().settle().decides()
IDENTITY = Identity(node("b"), NODES[1][1], (FIRST[1],), (GROUPS[0][1],))


class Rebooting(Hearer):
    """A node with a journal, written and read as `Node` does."""

    def __init__(self) -> None:
        self.journal: dict[bytes, bytes] = {}
        super().__init__()
        self.restart()

    def restart(self) -> None:
        """A new life on what the journal holds."""
        self.trust = open_trust(IDENTITY, self.journal, CRYPTO)
        held = {trust_key(*one): one[1] for one in self.trust.journalled()}
        restored = {key: one for key, one in self.journal.items() if not _of_trust(key)}
        self.journal = {**restored, **held}
        self.releases = Releases(
            CRYPTO.public_key(IDENTITY.seed),
            lambda message: CRYPTO.sign(IDENTITY.seed, message),
            self.trust,
            ReleasesConfig(models=(MODEL,)),
            random.Random(1),
            restored,
        )
        self._write(self.releases.start(self._now_ns) if hasattr(self, "_now_ns") else [])
        self._write(self.releases.on_trust(0))

    def _write(self, effects: Iterable[object]) -> None:
        for effect in effects:
            if isinstance(effect, Persist):
                if effect.value is None:
                    self.journal.pop(effect.key, None)
                else:
                    self.journal[effect.key] = effect.value

    def hear(self, items: Iterable[Item]) -> "Rebooting":
        for kind, data in items:
            self._now_ns += 60 * 1_000_000_000
            if kind in ("node", "group", "revoke", "root"):
                with suppress(IdentityError):
                    self.trust.add(kind, data)
                self._write(Persist(trust_key(*one), one[1]) for one in self.trust.news.take())
                self._write(Persist(trust_key(*one), None) for one in self.trust.news.take_gone())
                written = {key for key in self.journal if _of_trust(key)}
                assert written == {trust_key(*one) for one in self.trust.journalled()}, "the journal holds what counts"
                self._write(self.releases.on_trust(self._now_ns))
            else:
                push = encode_message(Push((), (data,), ()))
                self._write(self.releases.on_message(NodeId(b"p" * 16), push, self._now_ns))
        return self


def _of_trust(key: bytes) -> bool:
    return key.startswith(TRUST_JOURNAL)


def torn(journal: dict[bytes, bytes], rng: random.Random) -> dict[bytes, bytes]:
    """Some records are lost, cut short, spoilt, or another one's."""
    out = {}
    for key, value in journal.items():
        match rng.randrange(8):
            case 0:
                continue
            case 1:
                out[key] = value[: rng.randrange(len(value) or 1)]
            case 2 if value:
                at = rng.randrange(len(value))
                out[key] = value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
            case 3:
                out[key] = rng.choice(list(journal.values()))
            case _:
                out[key] = value
    return out


def check_restarts(order: list[int], attacks: list[int], seed: int, is_torn: bool = True) -> None:
    """Everything in some order among attacks, with restarts between any two; repaired, it decides the same."""
    rng = random.Random(seed)
    hearer = Rebooting()
    everything = [*HONEST, *AFTER, *ALWAYS]
    told = [HONEST[at] for at in order]
    for attack in attacks:
        told.insert(rng.randrange(len(told) + 1), everything[attack % len(everything)])
    for item in told:
        hearer.hear([item])
        if rng.random() < 0.2:
            if is_torn and rng.random() < 0.5:
                hearer.journal = torn(hearer.journal, rng)
            hearer.restart()
    hearer.settle()
    assert hearer.decides() == WHOLE
    hearer.restart()
    assert _lasting(hearer) == _lasting(Hearer().settle()), "the journal holds all that counts"
    hearer.hear([*AFTER, *ALWAYS])
    assert _lasting(hearer) == _lasting(Hearer().settle())


def _lasting(hearer: Hearer) -> object:
    return hearer.trust.root, hearer.trust.revoked, hearer.trust.group_keys, hearer.releases.view.models


@pytest.mark.slow
@settings(max_examples=60, deadline=None, report_multiple_bugs=False)
@given(st.permutations(range(len(HONEST))), st.lists(st.integers(0, 10_000), max_size=8), st.integers(0, 2**32))
def test_restarts_and_torn_journals_change_nothing(order: list[int], attacks: list[int], seed: int) -> None:
    check_restarts(order, attacks, seed)


def test_what_is_replaced_leaves_the_journal() -> None:
    """`hear` holds the journal against what counts, after each statement."""
    hearer = Rebooting()
    first, second = (GroupKey(SWARM, 7, bytes([number]) * 32) for number in (1, 2))
    hearer.hear(
        [
            say("node", certificate("x", node("x1"), 1), 0),
            say("node", certificate("x", node("x2"), 2), 0),
            say("node", certificate("y", node("x2"), 3), 0),
            say("node", certificate("x", node("x1"), 4), 0),
            say("group", first, 0),
            say("group", second, 0),
            say("group", first, 0),
        ]
    )
    assert sorted(kind for kind, _ in hearer.trust.journalled() if kind != "seen") == ["group", "group", "node", "node"]
    hearer.hear([SECOND, THIRD])


def test_between_any_two_statements_a_restart_lets_nobody_in() -> None:
    """Who was out when a root came is out under it, whether what it keeps came before or after, restarts between."""
    for first in (
        [*OUT, SECOND, THIRD, FOURTH],
        [SECOND, THIRD, FOURTH, *OUT],
        [SECOND, OUT[0], THIRD, OUT[1], FOURTH],
    ):
        hearer = Rebooting()
        for item in first:
            hearer.hear([item])
            before = hearer.trust.revoked
            hearer.restart()
            assert hearer.trust.revoked == before
        assert len(hearer.trust.revoked) == 2
        hearer.hear(NODES)
        assert hearer.decides()[1] == WHOLE[1]  # type: ignore[index]
