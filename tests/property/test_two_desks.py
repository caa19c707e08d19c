"""Two desks over one folder, in any order: nothing submitted is ever overwritten, and a refusal changes nothing.

Every number is the same on purpose (`next_counter`), so that desks collide wherever they can.
"""

import contextlib
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from swarmd.errors import DaemonError
from swarmd.identity import desk
from swarmd.identity.fleet import Fleet
from swarmd.identity.prepared import Prepared, add_signature, merge, missing
from swarmd.identity.words import parse_root
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from tests.support.officers import CRYPTO, NAMES, officer

SWARM = "farm"
ROLES = ("root", "enrol", "revoke", "release")
PUBLICS = tuple(CRYPTO.public_key(bytes([40 + at]) * 32) for at in range(3))
KINDS = ("revoke", "node", "group")
names = st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True)


class TwoDesks(RuleBasedStateMachine):
    """`prepare`, `sign` and `submit` by whoever comes first."""

    papers = Bundle("papers")

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory(prefix="swarmd-desks-")
        self.folder = Path(self.home.name) / "fleet"
        self.same_second = mock.patch.object(desk, "next_counter", return_value=1_000)
        self.same_second.start()
        self.seen: Counter[bytes] = Counter()

    @initialize()
    def found(self) -> None:
        halves = [officer(name).half for name in NAMES[:3]]
        first = desk.prepare_first_root("acme", dict.fromkeys((*ROLES, "floor", "heartbeat"), (2, halves)))
        for name in NAMES[:2]:
            first = add_signature(first, officer(name))
        desk.submit(self.folder, first)
        self.submit_all(desk.prepare_group_key(Fleet(self.folder), SWARM))
        for at, public in enumerate(PUBLICS[:2]):
            self.submit_all(desk.prepare_certificate(Fleet(self.folder), SWARM, f"n{at}", public))

    def submit_all(self, paper: Prepared) -> None:
        for name in NAMES[:2]:
            paper = add_signature(paper, officer(name))
        assert desk.submit(self.folder, paper).is_new

    def teardown(self) -> None:
        self.same_second.stop()
        self.home.cleanup()

    def prepared(self, make: Callable[[Fleet], Prepared]) -> Any:
        try:
            return make(Fleet(self.folder))
        except DaemonError:
            return multiple()

    @rule(target=papers, role=st.sampled_from(ROLES), holders=names, stolen=st.booleans())
    def prepare_root(self, role: str, holders: list[str], stolen: bool) -> Any:
        halves = [officer(name).half for name in holders]
        return self.prepared(lambda fleet: desk.prepare_root(fleet, {role: (2, halves)}, stolen=stolen))

    @rule(
        target=papers, kind=st.sampled_from(["revoke", "node", "group"]), at=st.integers(0, 2), other=st.integers(0, 2)
    )
    def prepare_statement(self, kind: str, at: int, other: int) -> Any:
        makers: dict[str, Callable[[Fleet], Prepared]] = {
            "revoke": lambda fleet: desk.prepare_revocation(fleet, SWARM, [node_id_of(PUBLICS[at])], "lost"),
            "node": lambda fleet: desk.prepare_certificate(fleet, SWARM, f"n{other}", PUBLICS[at]),
            "group": lambda fleet: desk.prepare_group_key(fleet, SWARM),
        }
        return self.prepared(makers[kind])

    @rule(target=papers, paper=papers, by=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2))
    def half_sign(self, paper: Prepared, by: list[str]) -> Prepared:
        return self.sign(paper, by)

    @staticmethod
    def sign(paper: Prepared, by: Sequence[str]) -> Prepared:
        for name in by:
            with contextlib.suppress(DaemonError):
                paper = add_signature(paper, officer(name))
        return paper

    @rule(paper=papers, other=papers, by=st.sampled_from([NAMES, NAMES, NAMES, ()]))
    def submit(self, paper: Prepared, other: Prepared, by: Sequence[str]) -> None:
        with contextlib.suppress(DaemonError):
            paper = merge(paper, other)
        paper = self.sign(paper, by)
        before = self.files()
        try:
            done = desk.submit(self.folder, paper)
        except DaemonError:
            assert self.files() == before, "a refusal changes nothing"
            return
        assert not missing(paper) or not done.is_new, "nothing goes in that too few have signed"
        self.has_effect(paper)

    def has_effect(self, paper: Prepared) -> None:
        fleet = Fleet(self.folder)
        trust = fleet.trust_of(SWARM)
        match paper.kind:
            case "root":
                assert any(link.envelope.payload == paper.payload for link in trust.chain.links)
                assert fleet.root().version >= parse_root(paper.payload).version
            case "revoke":
                out = msgspec.msgpack.decode(paper.payload, type=Revocation)
                assert set(out.nodes) <= trust.revoked
            case "group":
                group = msgspec.msgpack.decode(paper.payload, type=GroupKey)
                assert trust.group_keys[group.counter].key == group.key
            case _:
                certificate = msgspec.msgpack.decode(paper.payload, type=Certificate)
                assert fleet.find_node(SWARM, certificate.node.hex()) == [certificate.node]

    def files(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    @invariant()
    def nothing_is_overwritten(self) -> None:
        """A file may be put aside; its bytes stay in the folder for ever."""
        now = Counter(self.files().values())
        assert not self.seen - now, "something that was submitted is gone"
        self.seen = now

    @invariant()
    def the_folder_holds(self) -> None:
        if (self.folder / "roots").exists():
            fleet = Fleet(self.folder)
            assert [link.version for link in fleet.trust_of(SWARM).chain.links] == list(
                range(1, len(fleet.roots()) + 1)
            )


TwoDesks.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
test_two_desks = pytest.mark.slow(TwoDesks.TestCase)
