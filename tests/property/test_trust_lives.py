"""A node that runs on, one that restarts after every statement, and one that comes later decide the same.

Histories are drawn: roots that replace some keys, rivals and cross-signatures, thresholds that change, keys that serve
two roles, statements in several forms (who has signed so far), certificates of one key under several names and of this
node's own key by whoever held an enrol key, group keys that name revocations, tables that are full.
"""

import contextlib
import random
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.swim.sender import trust_key
from swarmd_protocols.trust import roots
from swarmd_protocols.trust import trust as trust_module
from swarmd_protocols.trust.envelopes import decode_envelope, sign_statement
from swarmd_protocols.trust.identity import Identity, open_trust
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation
from swarmd_protocols.trust.roots import make_root, mark, root_digest
from tests.property.test_bounded_tables import small_tables

CRYPTO = ModelCrypto()
SWARM = "farm"
KEYS = {role: [f"{role}{at}" for at in range(5)] for role in ("root", "enrol", "revoke")}
NAMES = ("a", "b", "c")
OWN = "own"


def _seed(word):
    return blake2b(word.encode(), digest_size=32).digest()


def _public(word):
    return CRYPTO.public_key(_seed(word))


NODES = {word: NodeId(node_id_of(_public(word))) for word in (OWN, "n1", "n2", "n3", "n4")}


def _root(roles, previous=None, epoch=1, kept=(), signers=()):
    """A root of these roles, {role: (need, words)}, signed by these words."""
    made = make_root(
        "laws",
        {role: (need, [_public(word) for word in words]) for role, (need, words) in roles.items()},
        version=previous[0] + 1 if previous else 1,
        epoch=epoch,
        previous=root_digest(previous[1]) if previous else b"",
        kept=kept,
    )
    return made.version, sign_statement("root", made, [_seed(word) for word in dict.fromkeys(signers)], CRYPTO)


FIRST_ROLES = {"root": (2, KEYS["root"][:3]), "enrol": (1, KEYS["enrol"][:2]), "revoke": (1, KEYS["revoke"][:3])}
FIRST = _root(FIRST_ROLES, signers=KEYS["root"][:3])


def certificate(word, name, counter, signers):
    """A certificate of a node's key."""
    told = Certificate(NODES[word], _public(word), name, (), SWARM, counter)
    return "node", sign_statement("node", told, [_seed(one) for one in signers], CRYPTO)


IDENTITY = Identity(
    _seed(OWN),
    certificate(OWN, "b", 2, ["enrol0"])[1],
    (FIRST[1],),
    (sign_statement("group", GroupKey(SWARM, 1, b"g" * 32), [_seed("enrol0")], CRYPTO),),
)

GIVEN = (IDENTITY.certificate, *IDENTITY.group_keys)


class Draw:
    """One history, drawn."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.roots = [(*FIRST, FIRST_ROLES, 1)]
        self.main = 0
        self.said = [("node", IDENTITY.certificate)]

    def item(self):
        """The next statement: a new one, or one that was said, with other signatures maybe."""
        rng = self.rng
        made = rng.choice((self._root, self._certificate, self._certificate, self._revocation, self._revocation))
        if rng.random() < 0.12:
            made = self._group
        if rng.random() < 0.2 and len(self.said) > 1:
            kind, statement = rng.choice(self.said[1:])
            if kind in ("revoke", "node") and rng.random() < 0.7:
                role = "revoke" if kind == "revoke" else "enrol"
                signers = [_seed(word) for word in self._some(role)]
                statement = sign_statement(kind, decode_envelope(statement).payload, signers, CRYPTO)
            return kind, statement
        one = made()
        self.said.append(one)
        return one

    def _some(self, role):
        words = [*KEYS[role], *(["enrol0"] if role == "revoke" else [])]
        return self.rng.sample(words, self.rng.choice((1, 1, 2, 3)))

    def _root(self):
        rng = self.rng
        at = rng.choice(range(len(self.roots))[-3:])
        version, statement, roles, epoch = self.roots[at]
        new = {}
        for role, (need, words) in roles.items():
            words = list(words)
            # Rivals that rest on new root keys of their own move nobody, or whom they reach first: see `roots.py`.
            if (role != "root" or at == self.main) and rng.random() < 0.5:
                words[rng.randrange(len(words))] = rng.choice(KEYS[role])
            if role == "revoke" and rng.random() < 0.2:
                words.append("enrol0")
            words = sorted(set(words))
            other = role != "root" and rng.random() < 0.3
            new[role] = min(len(words), rng.choice((1, 2)) if other else need), words
        marks = [mark(decode_envelope(one)) for kind, one in self.said if kind != "root"]
        kept = [one for one in marks if rng.random() < 0.5]
        later = epoch + (rng.random() < 0.25)
        signers = [*roles["root"][1], *new["root"][1]]
        if rng.random() < 0.4:
            signers += rng.sample(KEYS["root"], 3)  # Of another branch, maybe.
        made = _root(new, (version, statement), later, kept, signers)
        self.roots.append((*made, new, later))
        self.main = len(self.roots) - 1 if at == self.main else self.main
        return "root", made[1]

    def _certificate(self):
        rng = self.rng
        return certificate(rng.choice(list(NODES)), rng.choice(NAMES), rng.randrange(1, 6), self._some("enrol"))

    def _revocation(self):
        rng = self.rng
        out = tuple(rng.sample([NODES[word] for word in ("n1", "n2", "n3", "n4")], rng.choice((1, 1, 2))))
        told = Revocation(SWARM, rng.randrange(1, 4), out, "x" * rng.choice((1, 1, 40, 80)))
        return "revoke", sign_statement("revoke", told, [_seed(word) for word in self._some("revoke")], CRYPTO)

    def _group(self):
        rng = self.rng
        marks = [mark(decode_envelope(one)) for kind, one in self.said if kind == "revoke"]
        after = tuple(rng.sample(marks, min(len(marks), rng.choice((0, 1, 2)))))
        told = GroupKey(SWARM, rng.randrange(2, 5), bytes([rng.randrange(3)]) * 32, after)
        return "group", sign_statement("group", told, [_seed(word) for word in self._some("enrol")], CRYPTO)


class Life:
    """A node's trust and its journal, written as `Node` does."""

    def __init__(self, restarts):
        self.restarts = restarts
        self.journal = {}
        self.trust = open_trust(IDENTITY, {}, CRYPTO)

    def hear(self, kind, statement):
        """Take a statement; a certificate as members show it."""
        with contextlib.suppress(IdentityError):
            if kind == "shown":
                self.trust.admit_certificate(statement)
            else:
                self.trust.add(kind, statement)
        for one in self.trust.news.take():
            self.journal[trust_key(*one)] = one[1]
        for one in self.trust.news.take_gone():
            self.journal.pop(trust_key(*one), None)
        if self.restarts:
            self.trust = open_trust(IDENTITY, self.journal, CRYPTO)
            self.journal = {trust_key(*one): one[1] for one in self.trust.journalled() if one[1] not in GIVEN}

    def decides(self):
        """All that its trust decides."""
        trust = self.trust
        return (
            [link.envelope.payload for link in trust.chain.links],
            sorted(trust.chain.disputed),
            trust.revoked,
            sorted(decode_envelope(one).digest for kind, one in trust.statements() if kind == "group"),
            {word: trust.certified(node) for word, node in NODES.items()},
            sorted(statement for kind, statement in trust.journalled() if kind != "root"),
        )


def check_lives(seed):
    """See the module."""
    with small_tables(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(roots, "RIVALS_MAX", 64)
        draw = Draw(seed)
        running, restarted = Life(restarts=False), Life(restarts=True)
        for _ in range(40):
            kind, statement = draw.item()
            kind = "shown" if kind == "node" and draw.rng.random() < 0.5 else kind
            for life in (running, restarted):
                life.hear(kind, statement)
            assert running.decides() == restarted.decides(), kind
        newcomer = Life(restarts=False)
        for _ in range(3):
            for one, other in ((running, newcomer), (newcomer, running)):
                for told in one.trust.statements():
                    other.hear(*told)
        assert newcomer.decides()[:4] == running.decides()[:4]
        assert sorted(newcomer.trust.statements()) == sorted(running.trust.statements())


@pytest.mark.slow
@settings(max_examples=300, deadline=None, report_multiple_bugs=False)
@given(st.integers(0, 2**32))
def test_who_runs_on_who_restarts_and_who_comes_later_decide_the_same(seed):
    check_lives(seed)


@pytest.mark.parametrize("seed", [3, 9, 14, 36, 44, 98, 258, 354, 1061, 1114, 22096])
def test_lives_that_once_differed(seed):
    check_lives(seed)


def test_a_name_that_its_new_key_has_left_is_not_its_old_keys_again():
    """The certificate that replaced the old key is no longer its node's best: the journal keeps it all the same."""
    for restarts in (False, True):
        life = Life(restarts)
        for word, name, counter in (("n1", "a", 2), ("n1", "c", 3), ("n3", "x", 1), ("n2", "a", 1)):
            life.hear("shown", certificate(word, name, counter, ["enrol0"])[1])
        assert life.trust.certified(NODES["n1"]).name == "c"
        assert life.trust.certified(NODES["n2"]) is None


def test_whose_certificate_was_outdone_by_a_stolen_key_has_its_own_again_without_a_restart():
    roles = {**FIRST_ROLES, "enrol": (1, ["enrol1"])}
    mine = mark(decode_envelope(IDENTITY.certificate))
    root = _root(roles, FIRST, 2, [mine], KEYS["root"][:3])[1]
    for restarts in (False, True):
        life = Life(restarts)
        life.hear("node", certificate(OWN, "b", (1 << 63) - 1, ["enrol0"])[1])
        life.hear("root", root)
        assert life.trust.certified(NODES[OWN]).counter == 2
        assert life.trust.why_out(NODES[OWN]) == ""


def test_a_certificate_for_which_there_is_no_room_any_more_is_a_change():
    """Others judge by `revision`: who had a certificate and has none is to be looked at again."""
    life = Life(restarts=False)
    first, *rest = sorted((node for word, node in NODES.items() if word != OWN), reverse=True)
    words = {node: word for word, node in NODES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trust_module, "CERTIFICATES_MAX", 3)
        life.hear("shown", certificate(words[first], words[first], 1, ["enrol0"])[1])
        for node in rest:
            held, before = life.trust.certified(first) is not None, life.trust.revision
            life.hear("shown", certificate(words[node], words[node], 1, ["enrol0"])[1])
            if held and life.trust.certified(first) is None:
                assert life.trust.revision > before
                return
    raise AssertionError("it still has one")


def test_signatures_beyond_a_statements_room_displace_none_that_count():
    """Keys that were replaced sign what an older root's keys signed and the newest names: it goes on counting."""
    words = [f"old{at}" for at in range(48)]
    roles, chain = {**FIRST_ROLES, "revoke": (1, ["revoke0"])}, [_root(FIRST_ROLES, signers=KEYS["root"][:3])]
    told = Revocation(SWARM, 1, (NODES["n1"],), "")
    out = sign_statement("revoke", told, [_seed("revoke0")], CRYPTO)
    for at in range(4):
        need, mine = (1, ["revoke1"]) if at == 3 else (16, words[16 * at : 16 * at + 16])
        chain.append(_root({**roles, "revoke": (need, mine)}, chain[-1], 1, [mark(decode_envelope(out))], KEYS["root"]))
    trust = open_trust(IDENTITY, {}, CRYPTO)
    for _, root in chain[1:]:
        trust.add("root", root)
    trust.add("revoke", out)
    for few in (words[1:16], [*words[17:32], *words[33:35]]):
        more = [_seed(word) for word in ("revoke0", *few)]
        trust.add("revoke", sign_statement("revoke", told, more, CRYPTO))
    assert trust.revoked == {NODES["n1"]}
    again = open_trust(IDENTITY, {trust_key(*one): one[1] for one in trust.journalled()}, CRYPTO)
    assert again.revoked == {NODES["n1"]}
