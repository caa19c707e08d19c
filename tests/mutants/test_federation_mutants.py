"""Each rule of the federation taken out once: the laws must see it."""

import contextlib
import random
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from swarmd.federation import bounds as kept
from swarmd.federation import region, seers, sending, store
from swarmd.federation.region import Region
from swarmd.federation.store import Store
from swarmd_protocols.federation import gate
from swarmd_protocols.federation.allowance import Allowance, Numbers
from swarmd_protocols.federation.flow import Flow
from swarmd_protocols.federation.gate import Gate
from tests.support import federation_bounds as bounds
from tests.support.federation_hostile import (
    attack_as_another,
    be_answered_at_length,
    flood_another,
    keep_another_from_being_told,
    keep_newcomers_away,
    keep_the_dead_alive,
    play_back,
    read_another,
)
from tests.support.federation_world import make_world

Patch = pytest.MonkeyPatch


def story(folder: Path) -> None:
    """The law of the outbox, over a few drawn lives."""
    for seed in range(6):
        (folder / str(seed)).mkdir()
        world = make_world(folder / str(seed), random.Random(seed))
        try:
            world.misbehave(150)
            world.settle(200)
            world.check()
        finally:
            world.close()


def done_when_sent(patch: Patch) -> None:
    """A row leaves the outbox when it was handed to a pipe."""
    real = sending.Sending._send

    def send(self: Any, rows: Any, path: int, now_ns: int) -> bool:
        sent = real(self, rows, path, now_ns)
        if sent:
            self._outbox.acknowledge([(row.seq, row.seq) for row in rows])
        return sent

    patch.setattr(sending.Sending, "_send", send)


def never_again(patch: Patch) -> None:
    """A row is sent once."""
    patch.setattr(Flow, "_wait_ns", lambda self, one: 1 << 62)


def acknowledged_unwritten(patch: Patch) -> None:
    """The region acknowledges what it has not written down."""
    patch.setattr(Region, "_write_one", lambda self, gate, heard, now_ms: [])


def last_comes_wins(patch: Patch) -> None:
    """The word that arrives last counts, not the greatest."""
    patch.setattr(store, "_UPSERT", store._UPSERT.partition(" WHERE ")[0])


def refused_is_lost(patch: Patch) -> None:
    """Rows whose node's certificate is missing are refused instead of waiting."""

    def miss(self: Any, node: Any, heard: Any) -> None:
        from swarmd_protocols.errors import IdentityError

        raise IdentityError("no certificate")

    patch.setattr(Gate, "_miss", miss)


@pytest.mark.parametrize(
    "mutant", [done_when_sent, never_again, acknowledged_unwritten, last_comes_wins, refused_is_lost]
)
def test_the_law_of_the_outbox_sees_it(mutant: Callable[[Patch], None], tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            story(tmp_path)


def test_the_law_holds_without_a_mutant(tmp_path: Path) -> None:
    story(tmp_path)


# --- A hostile swarm ---------------------------------------------------------------------------------------------


def any_root(patch: Patch) -> None:
    """A key counts as a gateway's whoever certified it."""
    patch.setattr(Gate, "is_gateway", lambda self, public_key: True)


def any_author(patch: Patch) -> None:
    """A batch counts whoever signed it."""
    patch.setattr(gate, "verify_batch", lambda batch, public_key, signer: True)


def one_quota(patch: Patch) -> None:
    """All keys of one place use up the same quota, certified or not, copy or not."""
    patch.setattr(Numbers, "is_copy", lambda self, life, number: False)


def no_quota(patch: Patch) -> None:
    """Nothing is ever over the quota."""
    patch.setattr(Allowance, "pause_ms", lambda self, now_ns: 0)


def open_frames(patch: Patch) -> None:
    """Frames go as they are, without a seal."""
    from swarmd_protocols.crypto import ModelCrypto

    patch.setattr(ModelCrypto, "open", lambda self, key, nonce, sealed: sealed[:-16])


def any_time(patch: Patch) -> None:
    """A word counts whenever it says that it is of."""
    patch.setattr(Gate, "_check_time", lambda self, stamp_ms: None)


def numbers_are_forgotten(patch: Patch) -> None:
    """After a restart a gateway's frames count as never heard."""
    patch.setattr(Numbers, "restored", classmethod(lambda cls, life, highest: cls(life)))


def one_transaction(patch: Patch) -> None:
    """One row that cannot be written keeps all others from being written."""
    patch.setattr(Region, "_write_apart", Region._write_one)


def half_a_row(patch: Patch) -> None:
    """A row that cannot be written leaves a part of it."""
    patch.setattr(Store, "part", contextlib.nullcontext)


def no_bounds(patch: Patch) -> None:
    """A swarm's tables grow."""
    patch.setattr(store, "tidy_swarm", lambda database, swarm: None)


def nobodys_objects(patch: Patch) -> None:
    """Who saw an object is not kept."""
    patch.setattr(seers, "blake2b", lambda *_, **__: blake2b(b"", digest_size=8))


def oldest_of_all(patch: Patch) -> None:
    """Of too many rows the oldest go, whosever they are."""
    by_node = [(table, f"{whose}, {key}", *rest) for table, whose, key, *rest in kept._BY_NODE]
    patch.setattr(kept, "_BY_SWARM", (*kept._BY_SWARM, *by_node))
    patch.setattr(kept, "_BY_NODE", ())


def certificates_are_forgotten(patch: Patch) -> None:
    """What was kept of the kind "seen" is not taken at a start."""
    kept = Gate._takes
    patch.setattr(Gate, "_takes", lambda self, kind, statement: kind != "seen" and kept(self, kind, statement))


def all_again(patch: Patch) -> None:
    """Each statement has all of a swarm's written."""
    real = Region._write_one

    def write(self: Any, gate: Any, heard: Any, now_ms: int) -> Any:
        self._keep_trust(gate)
        return real(self, gate, heard, now_ms)

    patch.setattr(Region, "_write_one", write)


def statements_wait(patch: Patch) -> None:
    """A statement is on the disk only once the bounds were kept."""
    patch.setattr(region, "add_trust", lambda *_: None)


def rows_with_each_answer(patch: Patch) -> None:
    """All that a gateway has not taken in goes down with each answer."""
    patch.setattr(region, "ROWS_AGAIN_S", 0.0)


def each_is_told_to_pause(patch: Patch) -> None:
    """Each frame beyond the quota is answered."""
    patch.setattr(region, "PAUSE_AGAIN_S", 0.0)


def one_bucket(patch: Patch) -> None:
    """What strangers may cost is one amount, wherever they write."""
    patch.setattr(gate, "STRANGERS_BURST_BYTES", 1 << 30)


def the_past_is_now(patch: Patch) -> None:
    """A frame of a life that is over counts as heard now."""
    real = Gate._open

    def opened(self: Any, *given: Any) -> Any:
        heard = real(self, *given)
        if heard is not None:
            heard.is_past = False
        return heard

    patch.setattr(Gate, "_open", opened)


def one_is_told(patch: Patch) -> None:
    """All gateways of a swarm are told their lives in turn, once in a second."""
    told = property(lambda self: ALL_TOLD[0], lambda self, at_ns: ALL_TOLD.__setitem__(0, at_ns))
    patch.setattr(Numbers, "told_ns", told)
    patch.setitem(ALL_TOLD, 0, -(1 << 62))


ALL_TOLD = {0: -(1 << 62)}


@pytest.mark.parametrize(
    ("attack", "mutant"),
    [
        (attack_as_another, any_root),
        (attack_as_another, any_author),
        (bounds.a_statement_costs_what_it_is, all_again),
        (bounds.a_statement_costs_what_it_is, statements_wait),
        (be_answered_at_length, rows_with_each_answer),
        (be_answered_at_length, each_is_told_to_pause),
        (keep_newcomers_away, one_bucket),
        (play_back, one_quota),
        (keep_the_dead_alive, the_past_is_now),
        (keep_another_from_being_told, one_is_told),
        (flood_another, no_quota),
        (read_another, open_frames),
        (bounds.words_of_times_to_come_are_refused, any_time),
        (bounds.a_restart_forgets_no_certificate, certificates_are_forgotten),
        (bounds.frames_of_before_a_restart_are_copies, numbers_are_forgotten),
        (bounds.a_row_that_cannot_be_written_stops_nobody, one_transaction),
        (bounds.a_row_that_cannot_be_written_stops_nobody, half_a_row),
        (bounds.a_swarm_has_a_bound_and_each_node_its_share, no_bounds),
        (bounds.a_swarm_has_a_bound_and_each_node_its_share, oldest_of_all),
        (bounds.what_a_node_alone_says_pushes_out_its_own_objects, oldest_of_all),
        (bounds.what_a_node_alone_says_pushes_out_its_own_objects, nobodys_objects),
        (bounds.what_a_node_alone_says_pushes_out_its_own_objects, no_bounds),
    ],
)
def test_the_law_of_strangers_sees_it(
    attack: Callable[[Path], None], mutant: Callable[[Patch], None], tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    attack(tmp_path / "whole")
    (tmp_path / "mutant").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            attack(tmp_path / "mutant")


def test_the_mutants_touch_what_they_say() -> None:
    assert " WHERE " in store._UPSERT
    assert callable(Store.put_object)
