"""Each mistake that let a key in the wrong hands undo what the right hands signed; the laws of trust find every one."""

import random
from collections.abc import Callable

import msgspec
import pytest

from swarmd_protocols.channel.channel import Session
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.node import Node
from swarmd_protocols.releases import versions
from swarmd_protocols.releases.statement_book import StatementBook
from swarmd_protocols.swim import lessons, swim
from swarmd_protocols.swim.members import Member
from swarmd_protocols.swim.sender import FrameSender
from swarmd_protocols.trust import roots
from swarmd_protocols.trust import trust as trust_module
from swarmd_protocols.trust.envelopes import REMOVALS, Envelope, merge_signatures
from swarmd_protocols.trust.news import News
from swarmd_protocols.trust.roots import Link, RootChain
from swarmd_protocols.trust.trust import Trust
from tests.property import test_bounded_tables as tables
from tests.property import test_comeback_laws as comebacks
from tests.property import test_root_laws as root_laws
from tests.property import test_trust_laws as laws
from tests.property import test_trust_lives as lives
from tests.property import test_trust_restarts as restarts
from tests.support.fleet_net import fleet_folder
from tests.support.mutants import Mutant, assert_found
from tests.support.trust_history import HONEST
from tests.unit import test_node_composition as composition
from tests.unit import test_swim_regressions as regressions
from tests.unit import test_trust_attacks as attacks
from tests.unit import test_trust_lessons as alone


def _merge_first(patch: pytest.MonkeyPatch) -> None:
    """A zeroed signature is the lower one, and displaces the good one."""

    def admit(self: RootChain, envelope: Envelope, known: Envelope | None = None) -> Envelope:
        if not self.counts(self.verified(envelope)):
            raise IdentityError("lacks signatures")
        return merge_signatures(known, envelope) if known else envelope

    whole = RootChain.counts
    patch.setattr(RootChain, "admit", admit)
    patch.setattr(RootChain, "counts", lambda self, envelope: whole(self, self.verified(envelope)))


def _any_root(patch: pytest.MonkeyPatch) -> None:
    def counts(self: RootChain, verified: Envelope) -> bool:
        good = [key for key, _ in verified.signatures]
        return any(link.has_threshold(good, roots.ROLE_OF.get(verified.kind, "")) for link in self.links)

    patch.setattr(RootChain, "counts", counts)


def _whole_epoch(patch: pytest.MonkeyPatch) -> None:
    """What removes counts while any root of the epoch vouches for it: replaced keys go on removing."""
    newest = RootChain.counts

    def counts(self: RootChain, verified: Envelope) -> bool:
        good = [key for key, _ in verified.signatures]
        mine = [link for link in self.links if link.epoch == self.current.epoch]
        removes = verified.kind in REMOVALS
        role = roots.ROLE_OF.get(verified.kind, "")
        return newest(self, verified) or (removes and any(link.has_threshold(good, role) for link in mine))

    patch.setattr(RootChain, "counts", counts)


def _fork_for_ever(patch: pytest.MonkeyPatch) -> None:
    def path_to(self: RootChain, new: Link) -> list[Link]:
        at = new.version - 1
        if not 0 < at <= len(self.links) or self.links[at - 1].envelope.digest != new.root.previous:
            raise IdentityError("does not follow")
        return self.links[:at]

    patch.setattr(RootChain, "_path_to", path_to)


def _by_counter(patch: pytest.MonkeyPatch) -> None:
    whole = Trust._take_revocation

    def take(self: Trust, new):  # type: ignore[no-untyped-def]
        counter = new.value.counter
        self._revocations = {key: one for key, one in self._revocations.items() if one.value.counter != counter}
        whole(self, new)
        self.revoked = frozenset(node for one in self.revocations for node in one.nodes)

    patch.setattr(Trust, "_take_revocation", take)


def _last_group_key(patch: pytest.MonkeyPatch) -> None:
    def take(self: Trust, new):  # type: ignore[no-untyped-def]
        self._groups[new.value.counter] = new
        self.group_keys = {counter: one.value for counter, one in sorted(self._groups.items())}
        self.news.came("group", new.statement)

    patch.setattr(Trust, "_take_group_key", take)


def _not_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Trust, "_judge", lambda self: setattr(self, "revision", self.revision + 1))


def _flooded(patch: pytest.MonkeyPatch) -> None:
    def best(state, releases, held):  # type: ignore[no-untyped-def]
        mine = [one for one in state.items() if isinstance(one[1].statement, versions.Revoke)]
        return dict(sorted(mine, key=lambda one: one[0], reverse=True)[:64])

    patch.setattr(versions, "_removals", best)


def _first_come(patch: pytest.MonkeyPatch) -> None:
    """What is held stays: nodes that heard in another order differ for ever."""
    whole = Trust._take_revocation

    def take(self: Trust, new):  # type: ignore[no-untyped-def]
        if len(self._revocations) >= trust_module.REVOCATIONS_PER_KEY and new.digest not in self._revocations:
            raise IdentityError("full")
        whole(self, new)

    patch.setattr(Trust, "_take_revocation", take)


def _first_certificates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trust_module, "cut", lambda table, room, mine: [table.pop(next(iter(table)))])


def _one_room(patch: pytest.MonkeyPatch) -> None:
    """All keys share the room: a flood by one of them pushes out what another one signed."""
    patch.setattr(
        trust_module,
        "first_of_each_key",
        lambda statements, rank, room, *_: set(sorted(statements, key=rank.__getitem__)[:room]),
    )


def _whole_fits(patch: pytest.MonkeyPatch) -> None:
    """What fits is kept, a later one behind one that does not too: the join of two tables is not the table of both."""

    def first(statements, rank, room, keys, kept, room_bytes):  # type: ignore[no-untyped-def]
        chosen = {digest for digest in statements if digest[: trust_module.MARK_BYTES] in kept}
        left: dict[bytes, list[int]] = {}
        for digest in sorted(statements, key=rank.__getitem__):
            size = len(statements[digest].payload)
            for key, _ in statements[digest].signatures if digest not in chosen else ():
                number, space = left.setdefault(key, [room, room_bytes])
                if number and size <= space:
                    left[key] = [number - 1, space - size]
                    chosen.add(digest)
        return chosen

    patch.setattr(trust_module, "first_of_each_key", first)


def _out(trust: Trust) -> dict[bytes, object]:
    trust.revoked = frozenset(node for one in trust.revocations for node in one.nodes)
    return {}


def _many_keys(patch: pytest.MonkeyPatch) -> None:
    def certified(self: Trust, node: bytes):  # type: ignore[no-untyped-def]
        held = self._by_node.get(node)
        return held.value if held is not None and node not in self.revoked else None

    patch.setattr(Trust, "certified", certified)


def _tell_again(patch: pytest.MonkeyPatch) -> None:
    whole = Trust._tell

    def tell(self: Trust, held):  # type: ignore[no-untyped-def]
        self._spread.pop(held.digest, None)
        whole(self, held)

    patch.setattr(Trust, "_tell", tell)


def _heedless(patch: pytest.MonkeyPatch) -> None:
    whole = Trust._take_group_key

    def take(self: Trust, new):  # type: ignore[no-untyped-def]
        value = msgspec.structs.replace(new.value, after=())
        whole(self, msgspec.structs.replace(new, value=value))

    patch.setattr(Trust, "_take_group_key", take)


def _spread_first(patch: pytest.MonkeyPatch) -> None:
    whole = Node._on_trust

    def on_trust(self: Node) -> None:
        for kind, statement in list(self._core.trust.news):
            self._wire.trust_changed(kind, statement)
        whole(self)

    patch.setattr(Node, "_on_trust", on_trust)


def _still_answered(patch: pytest.MonkeyPatch) -> None:
    def session(self: FrameSender, member: Member) -> Session:
        member.session = self.channel.session(member.node, member.public_key, member.session_public)
        return member.session

    patch.setattr(FrameSender, "session", session)


def _forked_by_old_keys(patch: pytest.MonkeyPatch) -> None:
    """A rival of a root below the newest is a fork, whoever holds root keys today."""
    patch.setattr(RootChain, "_bows", lambda self, one, other: True)


def _only_of_nodes(patch: pytest.MonkeyPatch) -> None:
    def journalled(self: Trust) -> list[tuple[str, bytes]]:
        plain = [("seen", one.statement) for one in self._by_node.values() if one.digest not in self._spread]
        return [*self.statements(), *plain]

    patch.setattr(Trust, "journalled", journalled)


def _given_once(patch: pytest.MonkeyPatch) -> None:
    whole = Trust.begin

    def begin(self: Trust, certificate, revocations, group_keys):  # type: ignore[no-untyped-def]
        found = whole(self, certificate, revocations, group_keys)
        self._given = []
        return found

    patch.setattr(Trust, "begin", begin)


class _Anybody(frozenset[bytes]):
    def __contains__(self, key: object) -> bool:
        return True


def _removals_of_signers(patch: pytest.MonkeyPatch) -> None:
    whole = versions._removals
    patch.setattr(versions, "_removals", lambda state, releases, named: whole(state, releases, frozenset()))


def _some_branches(patch: pytest.MonkeyPatch) -> None:
    """A fork below a fork: of the branches only what they share is kept."""
    whole = RootChain._settle

    def settle(self: RootChain, branches: list[list[Link]]) -> None:
        whole(self, [branches[0][:1], *branches[1:]])

    patch.setattr(RootChain, "_settle", settle)


def _shuffled(seed: int) -> list[int]:
    order = list(range(len(HONEST)))
    random.Random(seed).shuffle(order)
    return order


def _greeted_for_ever() -> None:
    with fleet_folder() as fleet:
        alone.test_who_greets_for_ever_is_shown_a_bounded_number(fleet)


MUTANTS: dict[str, tuple[Callable[[], object], Mutant]] = {
    "signatures are joined before they are verified": (laws.test_all_attacks_at_once_change_nothing, _merge_first),
    "what was not verified is kept": (
        laws.test_all_attacks_at_once_change_nothing,
        lambda patch: patch.setattr(RootChain, "verified", lambda self, envelope: envelope),
    ),
    "keys of any root count": (laws.test_all_attacks_at_once_change_nothing, _any_root),
    "removals of replaced keys count in their epoch": (laws.test_all_attacks_at_once_change_nothing, _whole_epoch),
    "any rival is a fork": (
        root_laws.test_a_node_that_heard_the_rival_first_takes_the_chain,
        _forked_by_old_keys,
    ),
    "the first rival stays": (
        root_laws.test_a_node_that_heard_the_rival_first_takes_the_chain,
        lambda patch: patch.setattr(RootChain, "_bows", lambda self, one, other: False),
    ),
    "a fork is for ever": (lambda: root_laws.check_order([3, 0, 1, 2], set()), _fork_for_ever),
    "a fork keeps every branch": (
        root_laws.test_what_is_kept_of_a_fork_is_bounded,
        lambda patch: patch.setattr(roots, "RIVALS_MAX", 1_000),
    ),
    "trust is not judged anew": (laws.test_all_attacks_at_once_change_nothing, _not_anew),
    "releases are not judged anew": (
        laws.test_all_attacks_at_once_change_nothing,
        lambda patch: patch.setattr(versions, "judged", lambda state, chain: dict(state)),
    ),
    "a root keeps nothing": (
        laws.test_the_history_decides_something,
        lambda patch: patch.setattr(roots, "mark", lambda envelope: b""),
    ),
    "one signature is enough": (
        laws.test_all_attacks_at_once_change_nothing,
        lambda patch: patch.setattr(roots, "meets_threshold", lambda good, keys, need: bool(set(good) & set(keys))),
    ),
    "revocations of one counter overwrite each other": (laws.test_the_history_decides_something, _by_counter),
    "the last group key wins": (attacks.test_two_group_keys_of_one_number_are_chosen_alike, _last_group_key),
    "a name has many keys": (
        attacks.test_a_name_enrolled_again_leaves_its_old_key_nowhere,
        _many_keys,
    ),
    "news is spread before it is judged": (
        lambda: composition.test_sub_protocols_hear_of_new_trust_before_it_is_journalled_or_spread("group"),
        _spread_first,
    ),
    "a group key is taken before its revocations": (
        attacks.test_a_group_key_that_outruns_its_revocation_reaches_no_thief,
        _heedless,
    ),
    "who was shut out is still answered": (
        attacks.test_an_answer_that_falls_due_after_a_thief_was_shut_out_takes_it_no_group_key,
        _still_answered,
    ),
    "replaced root keys fork the chain": (attacks.test_replaced_root_keys_take_nobody_back, _forked_by_old_keys),
    "first come, first kept": (lambda: tables.check_tables(1, random.Random(1)), _first_come),
    "the certificates that came last are kept": (lambda: tables.check_tables(1, random.Random(1)), _first_certificates),
    "what fits is kept": (lambda: tables.check_tables(3, random.Random(1)), _whole_fits),
    "all keys share one room": (tables.test_a_flood_by_one_key_pushes_out_its_own_alone, _one_room),
    "tables have no bound": (
        tables.test_a_flood_by_one_key_pushes_out_its_own_alone,
        lambda patch: patch.setattr(Trust, "_cut_revocations", lambda self: _out(self)),
    ),
    "what a damaged journal said is not written again": (
        lambda: [restarts.check_restarts(_shuffled(seed), [], seed) for seed in (12, 78, 79)],
        lambda patch: patch.setattr(StatementBook, "mend", lambda self: []),
    ),
    "what fell stays in the journal": (
        lambda: restarts.check_restarts(_shuffled(1), [], 1, is_torn=False),
        lambda patch: patch.setattr(News, "became", lambda self, held, left: None),
    ),
    "what was replaced stays in the journal": (
        restarts.test_what_is_replaced_leaves_the_journal,
        lambda patch: patch.setattr(Trust, "_let_go", lambda self, old: None),
    ),
    "what is known is told again": (attacks.test_old_certificates_said_again_are_no_news, _tell_again),
    "nobody is shown what it missed": (
        lambda: comebacks.test_whoever_was_off_comes_back_or_says_why(0),
        lambda patch: patch.setattr(lessons.Lessons, "on_greeting", lambda *words, **named: None),
    ),
    "who is alone goes on to ping": (
        regressions.test_who_is_alone_greets_those_whom_it_does_not_call_failed,
        lambda patch: patch.setattr(swim, "_ALONE_NS", 1 << 62),
    ),
    "lessons have no bound": (_greeted_for_ever, lambda patch: patch.setattr(lessons, "_LESSONS_PER_S", 1_000)),
    "the journal keeps no certificate for its name alone": (
        lives.test_a_name_that_its_new_key_has_left_is_not_its_old_keys_again,
        _only_of_nodes,
    ),
    "what an identity holds counts once": (
        attacks.test_a_stolen_enrol_key_that_outdoes_every_certificate_leaves_nobody_alone,
        _given_once,
    ),
    "signatures by keys of a branch that is lost stay": (
        lambda: lives.check_lives(9),
        lambda patch: patch.setattr(RootChain, "signers_of", lambda self, kind: _Anybody()),
    ),
    "a removal that a root names is one of its signer's": (
        attacks.test_a_removal_that_the_root_names_is_not_displaced_by_one_that_falls,
        _removals_of_signers,
    ),
    "branches of a fork are lost": (root_laws.test_a_fork_below_a_fork_keeps_its_branches, _some_branches),
    "a flood of removals displaces": (attacks.test_a_flood_of_one_revoke_key_lets_nothing_in_again, _flooded),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_mutant_is_caught(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law, patch = MUTANTS[mutant]
    assert_found(patch, law, monkeypatch)
