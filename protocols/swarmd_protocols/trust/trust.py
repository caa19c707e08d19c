"""What a node believes about its fleet: one lattice of signed statements under the one chain of roots.

    root (k of n offline keys) ── names the keys and thresholds of ──▶ enrol, revoke, release, floor, heartbeat
    enrol  ── signs ──▶ certificate {node id, Ed25519 key, name, roles, swarm, counter}     one per node
    enrol  ── signs ──▶ group key   {swarm, counter, 32-byte key}                            seals first contact
    revoke ── signs ──▶ revocation  {swarm, node ids, counter, reason}                       shuts nodes out

A statement is judged before it is kept, and only ever stands beside others that count. When the chain grows, everything
is judged anew. Of certificates the best of each node and of each name is kept, of group keys the best of each counter,
of revocations every one, within bounds that know no order (`bounds.py`). Nothing expires by a clock.
"""

from collections.abc import Iterable, Mapping, Sequence

from swarmd_protocols.crypto import Crypto
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.trust.bounds import cut, first_of_each_key
from swarmd_protocols.trust.envelopes import MARK_BYTES, Envelope, KeyId, decode_envelope, merge_signatures
from swarmd_protocols.trust.held import (
    Held,
    all_still,
    by_counter,
    certificate_of,
    group_key_of,
    regained,
    revocation_of,
    signers_of,
    those_still,
)
from swarmd_protocols.trust.news import News
from swarmd_protocols.trust.payloads import (
    AFTER_MAX,
    Certificate,
    GroupKey,
    Revocation,
    plain,
    read_payload,
)
from swarmd_protocols.trust.roots import ROOT_CHAIN_MAX, Root, RootChain, role_of

CERTIFICATES_MAX = 8_192
"""Nodes, and names, of which the best certificate is kept, the first in order: twice `gossip.members_max`; 3 MB."""
GROUP_KEYS_MAX = 64
"""The newest are kept; each costs a trial at first contact, and a key lives for months."""
REVOCATIONS_PER_KEY, REVOCATION_BYTES_PER_KEY = 2_048, 1 << 20
"""Revocations kept of one key, the lowest counters first, and bytes of what they say (65,000 ids, 7 MB); and
beside them all that the newest root names: a flood by one key pushes out nothing that another key has signed or that
the root role calls right."""
TRUST_JOURNAL = b"node/trust/"
"""Journal keys: this, the kind, a slash, and what tells statements of the kind apart."""
JOURNALLED = ("root", "revoke", "node", "seen", "group")
"""In the order in which they are taken in; "seen" are certificates that replaced nothing."""


class Trust:
    """See the module; `swarmd_protocols.trust.view` has what sub-protocols may ask."""

    def __init__(self, swarm: str, roots: Sequence[bytes], crypto: Crypto) -> None:
        """Start from a root chain whose first link is trusted as given (it was installed at enrolment).

        Raises:
            IdentityError: The chain is empty, too long, or one link does not follow from the one before.
        """
        if not 0 < len(roots) <= ROOT_CHAIN_MAX:
            raise IdentityError(f"a root chain has 1 to {ROOT_CHAIN_MAX} links; this one has {len(roots)}")
        self.swarm = swarm
        self.chain = RootChain.trust(roots[0], crypto)
        self.revision = 0
        self.revoked: frozenset[bytes] = frozenset()
        self.group_keys: dict[int, GroupKey] = {}
        """By counter; those that were in force last where the newest root stands behind none, so that members can
        still meet and hear of a new one."""
        self._crypto = crypto
        self._groups: dict[int, Held] = {}
        self._revocations: dict[bytes, Held] = {}
        self._heard: set[bytes] = set()
        """Their marks."""
        self._by_node: dict[bytes, Held] = {}
        """The best certificate of each node; one holds where it is also the best of its name."""
        self._by_name: dict[str, Held] = {}
        self._spread: dict[bytes, Held] = {}
        """By digest, certificates that replaced another, so that everybody has to learn them."""
        self.own = b""
        """This node's id: its certificate is never forgotten for want of room."""
        self._given: list[Held] = []
        """What this node's identity holds beside roots."""
        self.fallen: frozenset[bytes] = frozenset()
        """Nodes let in again because a root of the same epoch does not name their revocation; the reader clears it."""
        self.news = News()
        """For the journal and, except for "seen", to be passed on."""
        for link in roots[1:]:
            self.add("root", link)

    # --- what holds ---------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Root:
        """The newest root."""
        return self.chain.current.root

    @property
    def revocations(self) -> list[Revocation]:
        """All that count."""
        return [revocation_of(self._revocations[digest]) for digest in sorted(self._revocations)]

    def known_first(self) -> tuple[bytes, ...]:
        """What a new group key has to name in `after`: the newest revocations."""
        newest = sorted(self._revocations.values(), key=lambda one: one.rank, reverse=True)[:AFTER_MAX]
        return tuple(sorted(one.digest[:MARK_BYTES] for one in newest))

    @property
    def roots(self) -> list[bytes]:
        """The chain as it travels, oldest first."""
        return self.chain.statements

    def role(self, name: str) -> tuple[Mapping[KeyId, bytes], int]:
        """Key id to public key, and the threshold, of a role; empty and 1 where the root names none."""
        return role_of(self.chain.current, name)

    def certified(self, node: NodeId) -> Certificate | None:
        """See `TrustView.certified`."""
        held = self._by_node.get(node)
        if held is None or node in self.revoked:
            return None
        certificate = certificate_of(held)
        return certificate if self._by_name.get(certificate.name) is held else None

    def certificate_statement(self, node: NodeId) -> bytes | None:
        """See `TrustView.certificate_statement`."""
        return self._by_node[node].statement if self.certified(node) is not None else None

    def certificate(self, statement: bytes) -> Certificate:
        """Verify a certificate without keeping it.

        Raises:
            IdentityError: It does not hold, its node is revoked, or its name belongs to a newer key.
        """
        held = self._open("node", statement)
        certificate = certificate_of(held)
        best = self._by_name.get(certificate.name)
        if best is not None and certificate_of(best).node != certificate.node and best.rank > held.rank:
            raise IdentityError(f"node {certificate.name!r} was enrolled again; this certificate is of its older key")
        if certificate.node in self.revoked:
            raise IdentityError(f"node {certificate.name!r} is {self.why_out(NodeId(certificate.node))}")
        return certificate

    def holds(self, statement: bytes) -> bool:
        """Whether `certificate` would take it."""
        try:
            self.certificate(statement)
        except IdentityError:
            return False
        return True

    def why_out(self, node: NodeId) -> str:
        """Why a node has no certificate that holds, for people; "" where it has one."""
        if self.certified(node) is not None:
            return ""
        said = [one for one in self.revocations if node in one.nodes]
        if said:
            reason = max(said, key=lambda one: (one.counter, one.reason)).reason
            return f"revoked: {plain(reason)}" if reason else "revoked"
        if node in self._by_node:
            return "replaced: its name was enrolled again under another key"
        return f"without a certificate: root {self.root.version} stands behind none that is known here"

    def lessons(self, node: NodeId) -> list[tuple[str, bytes]]:
        """What a node may have missed that keeps it out: later roots, who shut it out, its newest certificate."""
        found = [("root", root) for root in self.roots[1:]]
        if node in self.revoked:
            held = [self._revocations[digest] for digest in sorted(self._revocations)]
            return found + [("revoke", one.statement) for one in held if node in revocation_of(one).nodes]
        own = self._by_node.get(node)
        if own is None:
            return found
        best = self._by_name.get(certificate_of(own).name, own)
        return [*found, ("node", best.statement)] if best.digest in self._spread else found

    def statements(self) -> list[tuple[str, bytes]]:
        """Everything that a peer may lack, as (kind, statement), in an order in which it can be taken."""
        found = [("root", root) for root in (*self.roots[1:], *self.chain.disputed)]
        found += [("revoke", self._revocations[digest].statement) for digest in sorted(self._revocations)]
        found += [("node", self._spread[digest].statement) for digest in sorted(self._spread)]
        return found + [("group", self._groups[counter].statement) for counter in sorted(self._groups)]

    def journalled(self) -> list[tuple[str, bytes]]:
        """All that a node keeps over a restart: `statements`, and certificates that replaced nothing ("seen")."""
        best = {one.digest: one.statement for one in (*self._by_node.values(), *self._by_name.values())}
        return [*self.statements(), *(("seen", one) for digest, one in best.items() if digest not in self._spread)]

    # --- taking in ----------------------------------------------------------------------------------------------------

    def add(self, kind: str, statement: bytes) -> bool:
        """Take a statement from anywhere.

        Args:
            kind: "root", "revoke", "node" or "group".
            statement: The encoded envelope.

        Returns:
            Whether it was new.

        Raises:
            IdentityError: It does not hold, or is of a kind that is not taken here.
        """
        told = self.news.count
        match kind:
            case "root":
                before, out, roots = self.chain.current, self.revoked, (*self.roots[1:], *self.chain.disputed)
                good = self.chain.extend(statement)
                if good is not None:
                    held = {*(("root", root) for root in roots), *self.journalled()}
                    self.news.came("root", good)
                    self._judge()
                    self.news.became(held, self.journalled())
                    if self.root.version > before.version and self.root.epoch == before.epoch:
                        self.fallen |= out - self.revoked
            case "revoke":
                self._take_revocation(self._open(kind, statement))
            case "group":
                self._take_group_key(self._open(kind, statement))
            case "node":
                self._place(certificate := self._open(kind, statement))
                if (best := self._best_form(certificate)) is not None:
                    self._tell(best)
            case _:
                raise IdentityError(f"statements of kind {kind!r} are not taken here")
        return self.news.count > told

    def begin(self, certificate: bytes, revocations: Iterable[bytes], group_keys: Iterable[bytes]) -> Certificate:
        """Take what the identity of this node holds; whatever falls and counts again is there again, as at boot.

        Returns:
            Its certificate.

        Raises:
            IdentityError: Something does not hold.
        """
        own = self._open("node", certificate)
        self.own = certificate_of(own).node
        found = self.admit_certificate(certificate)
        out = [self._open("revoke", one) for one in revocations]
        groups = [self._open("group", one) for one in group_keys]
        for revocation in out:
            self._take_revocation(revocation)
        for group in groups:
            self._take_group_key(group)
        self._given = [own, *out, *groups]
        return found

    def admit_certificate(self, statement: bytes) -> Certificate:
        """See `TrustView.admit_certificate`."""
        certificate = certificate_of(held := self._open("node", statement))
        self._place(held)
        if certificate.node in self.revoked:
            raise IdentityError(f"node {certificate.name!r} is {self.why_out(NodeId(certificate.node))}")
        holds = self.certified(NodeId(certificate.node))
        if certificate.node not in self._by_node or certificate.name not in self._by_name:
            raise IdentityError(f"{CERTIFICATES_MAX} other nodes are enrolled; replace the enrol keys to begin anew")
        if holds is None:
            raise IdentityError(f"node {certificate.name!r} was enrolled again; this certificate is of its older key")
        return holds

    def _best_form(self, held: Held) -> Held | None:
        """A certificate as it is held, with all its good signatures; None where it is the best of nothing."""
        certificate = certificate_of(held)
        best = (self._by_name.get(certificate.name), self._by_node.get(certificate.node))
        return next((one for one in best if one is not None and one.digest == held.digest), None)

    def _open(self, kind: str, statement: bytes) -> Held:
        """Verify, and only then read, what somebody says."""
        try:
            envelope = decode_envelope(statement)
        except WireError as error:
            raise IdentityError(str(error)) from error
        if envelope.kind != kind:
            raise IdentityError(f"a {envelope.kind} statement came where a {kind} statement is taken")
        return self._judged(envelope)

    def _judged(self, envelope: Envelope) -> Held:
        verified = self.chain.admit(envelope)
        try:
            value = read_payload(envelope.kind, envelope.payload)
        except WireError as error:
            raise IdentityError(f"{envelope.kind} statement is signed but malformed: {error}") from error
        if value.swarm != self.swarm:
            raise IdentityError(f"{envelope.kind} statement is for swarm {value.swarm!r}; this is {self.swarm!r}")
        if isinstance(value, Certificate) and value.node != node_id_of(value.public_key):
            raise IdentityError("certificate's node id is not the hash of its key")
        return Held(self._crypto.share(value), verified.digest, self._crypto.share(verified.encode()))

    def _merged(self, known: Held | None, new: Held) -> Held:
        """The new one, with the good signatures of the known one if the two are one statement."""
        if known is None or known.digest != new.digest or known.statement == new.statement:
            return new
        both = self.chain.verified(merge_signatures(decode_envelope(known.statement), decode_envelope(new.statement)))
        if not self.chain.counts(both):
            return known  # Keys that were replaced have signed too, so many that those which count had no room.
        return Held(known.value, known.digest, self._crypto.share(both.encode()))

    def _take_revocation(self, new: Held) -> None:
        known = self._revocations.get(new.digest)
        merged = self._merged(known, new)
        if known is not None and known.statement == merged.statement:
            return
        self._revocations[new.digest] = merged
        gone: dict[bytes, Held] = {}
        if self._is_over_room():
            gone = self._cut_revocations()
        else:
            self.revoked |= frozenset(revocation_of(merged).nodes)
            self._heard.add(merged.digest[:MARK_BYTES])
        if known is not None:
            self.news.went("revoke", known.statement)
        is_refused = gone.pop(new.digest, None) is not None
        for one in gone.values():
            self.news.went("revoke", one.statement)
        if is_refused:
            raise IdentityError("its key has all the revocations of lower numbers there is room for; replace that key")
        self.revision += 1
        self.news.came("revoke", merged.statement)

    def _is_over_room(self) -> bool:
        """Whether one key may have more revocations than it has room for."""
        held = self._revocations
        size = sum(len(one.statement) for one in held.values())
        return len(held) > REVOCATIONS_PER_KEY or size > REVOCATION_BYTES_PER_KEY

    def _cut_revocations(self) -> dict[bytes, Held]:
        """Keep what every key has room for; returns the rest. Who is out and which group keys hold follows."""
        held = self._revocations
        if self._is_over_room():
            envelopes = {digest: decode_envelope(one.statement) for digest, one in held.items()}
            ranks = {digest: one.rank for digest, one in held.items()}
            keys, named = self.role("revoke")[0], self.chain.current.kept
            kept = first_of_each_key(envelopes, ranks, REVOCATIONS_PER_KEY, keys, named, REVOCATION_BYTES_PER_KEY)
            self._revocations = {digest: one for digest, one in held.items() if digest in kept}
        self.revoked = frozenset(node for one in self._revocations.values() for node in revocation_of(one).nodes)
        # A group key that names one of the rest goes too: who comes later could not take it, and none are told apart.
        self._heard = {digest[:MARK_BYTES] for digest in self._revocations}
        fell = [at for at, one in self._groups.items() if not self._heard.issuperset(group_key_of(one).after)]
        for counter in fell:
            self.news.went("group", self._groups.pop(counter).statement)
        given = those_still(self._given, self.chain) if fell else []
        for one in regained(self._groups, given, self._heard, GROUP_KEYS_MAX):
            self._groups[one.value.counter] = one
            self.news.came("group", one.statement)
        self.group_keys = by_counter(self._groups) or self.group_keys
        return {digest: one for digest, one in held.items() if digest not in self._revocations}

    def _take_group_key(self, new: Held) -> None:
        counter = new.value.counter
        if not self._heard.issuperset(group_key_of(new).after):
            raise IdentityError(f"group key {counter} names a revocation that is not known here; hand it over first")
        if (known := self._groups.get(counter)) is not None and known.rank > new.rank:
            raise IdentityError(f"another group key has the number {counter}: two desks drew at once; draw a new one")
        merged = self._merged(known, new)
        if known is not None and known.statement == merged.statement:
            return
        if len(self._groups) >= GROUP_KEYS_MAX and known is None:
            oldest = min(self._groups)
            if counter < oldest:
                return
            self.news.went("group", self._groups.pop(oldest).statement)
        elif known is not None:
            self.news.went("group", known.statement)
        self._groups[counter] = merged
        self.group_keys = by_counter(self._groups)
        self.revision += 1
        self.news.came("group", merged.statement)

    def _tell(self, held: Held) -> None:
        """This certificate replaced another, or has more signatures: everybody has to learn it, once."""
        told = self._spread.get(held.digest)
        if told is None or told.statement != held.statement:
            self.revision += 1
            self._spread[held.digest] = held
            self.news.went("node" if told else "seen", (told or held).statement)
            self.news.came("node", held.statement)

    def _place(self, new: Held) -> None:
        """Keep the best of each node and of each name."""
        certificate = certificate_of(new)
        before = [self._by_node.get(certificate.node), self._by_name.get(certificate.name)]
        known = next((one for one in before if one is not None and one.digest == new.digest), None)
        if known is not None:
            new = self._merged(known, new)
            if new.statement == known.statement:
                return
        self._rank(new)
        after = [self._by_node.get(certificate.node), self._by_name.get(certificate.name)]
        for old, best in zip(before, after, strict=True):
            if old is not None and (old.digest != new.digest or old.digest in self._spread):
                if best is not None:
                    self._tell(best)
                self._let_go(old)
        if new in after and new.digest not in self._spread:
            self.news.came("seen", new.statement)
            if known is not None:
                self._let_go(known)

    def _let_go(self, old: Held, *, was_held: bool = True) -> None:
        """A certificate, or a form of it, was replaced: neither peers nor the journal hear of it any more."""
        best = self._best_form(old)
        if best is None and (told := self._spread.pop(old.digest, None)) is not None:
            self.news.went("node", told.statement)
        if best is not old and was_held:
            self.news.went("seen", old.statement)

    def _rank(self, new: Held) -> None:
        certificate = certificate_of(new)
        of_node, of_name = self._by_node.get(certificate.node), self._by_name.get(certificate.name)
        if of_node is None or of_node.rank <= new.rank:
            self._by_node[certificate.node] = new
        if of_name is None or of_name.rank <= new.rank:
            self._by_name[certificate.name] = new
        if max(len(self._by_node), len(self._by_name)) > CERTIFICATES_MAX:
            mine = self._by_node.get(self.own)
            gone = cut(self._by_node, CERTIFICATES_MAX, self.own)
            gone += cut(self._by_name, CERTIFICATES_MAX, certificate_of(mine).name if mine else None)
            if any(one is not new for one in gone):
                self.revision += 1
            for one in gone:
                self._let_go(one, was_held=one is not new)

    # --- judging anew -------------------------------------------------------------------------------------------------

    def _judge(self) -> None:
        """The chain has changed: everything anew, as if it came for the first time."""
        self.revision += 1
        signers = signers_of(self.chain)
        given = those_still(self._given, self.chain)
        self._revocations = all_still(self._revocations, self.chain, signers)
        self._groups = all_still(self._groups, self.chain, signers)
        best = {one.digest: one for one in (*self._by_node.values(), *self._by_name.values())}
        best = all_still(best, self.chain, signers)
        for one in given:
            match one.value:
                case Revocation():
                    self._revocations[one.digest] = self._merged(self._revocations.get(one.digest), one)
                case Certificate() if one.digest in best:
                    best[one.digest] = self._merged(best[one.digest], one)
                case GroupKey(counter=counter):
                    known = self._groups.get(counter)
                    if known is None or known.rank <= one.rank:
                        self._groups[counter] = self._merged(known, one)
        self._groups = dict(sorted(self._groups.items())[-GROUP_KEYS_MAX:])
        self._cut_revocations()
        self._by_node, self._by_name = {}, {}
        for one in best.values():
            self._rank(one)
        spread = all_still(self._spread, self.chain, signers)
        self._spread = {digest: best.get(digest, one) for digest, one in spread.items()}
        for one in given:
            if isinstance(one.value, Certificate) and one.digest not in best:
                self._place(one)
