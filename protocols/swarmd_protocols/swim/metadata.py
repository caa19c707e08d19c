"""Versioned metadata that members say of themselves: signed, the highest sequence of a key holds, journalled here."""

from bisect import insort

import msgspec

from swarmd_protocols.channel.codec import decode_body, encode
from swarmd_protocols.effects import MemberChanged, Persist
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.swim.core import DETAIL, RECORD, Core
from swarmd_protocols.swim.event_log import is_text
from swarmd_protocols.swim.members import META, Member
from swarmd_protocols.swim.messages import MetaBody, MetaEntry
from swarmd_protocols.swim.rules import BOOT_MAX, BOOT_SHIFT, fingerprint

_META_BODY = msgspec.msgpack.Decoder(MetaBody)
_KEYS_MAX = 64
"""Metadata keys of one node: what a device says of itself fits into a dozen."""
_META_JOURNAL = b"swim/meta/"
_MASK = 2**64 - 1


class Metadata:
    """This node's metadata and that of all members."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.own_meta: dict[str, tuple[int, bytes, bytes]] = {}
        self.own_meta_fp = 0
        """The sum of the fingerprints of this node's own metadata."""
        self._meta_sequence = 0
        self._set_here: set[str] = set()
        """Own metadata keys set in this life; the others come from the journal, or from peers that remember them."""

    def restore_meta(self, records: dict[bytes, bytes]) -> None:
        """Take own metadata back from the journal; damaged records are dropped."""
        core = self.core
        own_key = core.crypto.public_key(core.own.seed)
        for key, encoded in sorted(records.items()):
            if not key.startswith(_META_JOURNAL):
                continue
            try:
                entry = msgspec.msgpack.decode(encoded, type=MetaEntry)
                body = decode_body(_META_BODY, entry.body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, WireError):
                core.counters["journal_damaged"] += 1
                continue
            if body.node != core.own.node:
                continue
            if not core.signed_by(own_key, "meta", entry.body, entry.signature):
                core.counters["journal_damaged"] += 1  # Nobody else would take what a flipped bit has made.
                continue
            self._hold_own(body, entry.body, encoded)

    def set_meta(self, key: str, value: bytes) -> None:
        """Set one versioned key of this node's metadata; a value that the swarm holds is not said again.

        Raises:
            StateError: The key is no text of 1 to 64 characters, or there is no room for so much.
        """
        core = self.core
        if not 0 < len(key) <= 64 or not is_text(key):
            raise StateError(f"a metadata key has 1 to 64 characters of Unicode text; {key[:80]!r} has {len(key)}")
        total = sum(len(held) for other, (_, held, _) in self.own_meta.items() if other != key) + len(value)
        if total > core.config.meta_bytes_max or (key not in self.own_meta and len(self.own_meta) >= _KEYS_MAX):
            raise StateError(
                f"metadata would hold {total} bytes; at most {core.config.meta_bytes_max} in {_KEYS_MAX} keys"
            )
        self._set_here.add(key)
        held = self.own_meta.get(key)
        if held is None or held[1] != value:
            self._publish_own(key, value)

    def _publish_own(self, key: str, value: bytes) -> None:
        core = self.core
        sequence = max(self._meta_sequence + 1, core.own.boot << BOOT_SHIFT)
        body = MetaBody(core.own.node, sequence, key, value)
        raw = encode(body)
        encoded = encode(MetaEntry(raw, core.sign("meta", raw)))
        core.port.emit(Persist(_META_JOURNAL + key.encode(), encoded))
        self._hold_own(body, raw, encoded)
        self._spread_meta(core.own.node, key, encoded, first=False)

    def _hold_own(self, body: MetaBody, raw: bytes, encoded: bytes) -> None:
        old = self.own_meta.get(body.key)
        old_fp = fingerprint(_signed_body(old[2])) if old else 0
        self._meta_sequence = max(self._meta_sequence, body.sequence)
        self.own_meta[body.key] = (body.sequence, body.value, encoded)
        new = (self.own_meta_fp - old_fp + fingerprint(raw)) & _MASK
        self.core.table.adjust(META, self.own_meta_fp, new)
        self.own_meta_fp = new
        self.core.changed()

    def _spread_meta(self, node: bytes, key: str, encoded: bytes, *, first: bool) -> None:
        # Values too large for a datagram travel by repair, which takes the reliable path. What a newcomer says first
        # rides like its record: pushed by everybody, it would be most of what a swarm sends while it forms.
        if len(encoded) <= 1_000:
            self.core.spread(("meta", node, key), encoded, RECORD if first else DETAIL, urgent=not first)

    def on_meta(self, message: MetaEntry, via: Member) -> None:
        """One key of some member's metadata."""
        core = self.core
        try:
            body = decode_body(_META_BODY, message.body)
        except WireError as error:
            core.reject(via, str(error))
            return
        if body.node == core.own.node:
            self._remembered(message, body, via)
            return
        member = core.table.by_node.get(body.node)
        if member is None:
            return
        held = member.repair.meta or {}
        old = held.get(body.key)
        # Of two values under one number every node takes the same.
        if old is not None and old[:2] >= (body.sequence, body.value):
            if old[:2] == (body.sequence, body.value):
                core.queue.overheard(("meta", member.node, body.key))
            return
        encoded = encode(message)
        within = self._within_bounds(held, body.key, (body.sequence, body.value, encoded))
        if body.key not in within:
            core.counters["metadata_left_behind"] += 1
            return
        if not core.holds_word(member, "meta", message, via, "metadata"):
            return
        gone = [entry for key, entry in held.items() if key == body.key or key not in within]
        for key in sorted(held.keys() - within.keys()):
            core.queue.drop(("meta", member.node, key))
        member.repair.meta = within
        counted = member.repair.counted
        core.table.count(member, False)
        gone_fp = sum(fingerprint(_signed_body(entry[2])) for entry in gone)
        member.repair.fp_meta = (member.repair.fp_meta - gone_fp + fingerprint(message.body)) & _MASK
        core.table.count(member, counted)
        if core.heard(member.node, member.name, len(encoded), f"metadata {body.key!r}, sequence {body.sequence}"):
            self._spread_meta(body.node, body.key, encoded, first=not held)
        core.changed_by(member.node)
        core.port.emit(MemberChanged(member.node, member.name, member.state, member.state, f"metadata {body.key}"))

    def _within_bounds(
        self, held: dict[str, tuple[int, bytes, bytes]], new_key: str, new: tuple[int, bytes, bytes]
    ) -> dict[str, tuple[int, bytes, bytes]]:
        """The newest that a member may have: the same ones at every node, in whatever order they came.

        Args:
            held: What it has, the newest first, as this made it.
            new_key: Of which this is another value.
            new: Sequence, value, and the entry as it travels.
        """
        kept: dict[str, tuple[int, bytes, bytes]] = {}
        total = 0
        entries = [item for item in held.items() if item[0] != new_key]
        insort(entries, (new_key, new), key=lambda item: (-item[1][0], item[0]))
        for key, entry in entries:
            total += len(entry[1])
            if len(kept) >= _KEYS_MAX or total > self.core.config.meta_bytes_max:
                break
            kept[key] = entry
        return kept

    def _remembered(self, message: MetaEntry, body: MetaBody, via: Member) -> None:
        """A peer holds a newer value of an own key: the journal was lost, and the swarm remembers what it held.

        It is taken back, unless this life has set the key anew (then this value goes above it) or has no room for it.
        """
        core = self.core
        own = self.own_meta.get(body.key)
        # A life that lost its journal may have given the same number to another value.
        known = own is not None and (own[0] > body.sequence or (own[0] == body.sequence and own[1] == body.value))
        if known or body.sequence >> BOOT_SHIFT >= BOOT_MAX:
            return
        if not core.signed_by(core.crypto.public_key(core.own.seed), "meta", message.body, message.signature):
            core.reject(via, "metadata in this node's name is not signed by it")
            return
        if own is None and len(self.own_meta) >= _KEYS_MAX and not self._gives_up_a_key(body):
            core.counters["metadata_left_behind"] += 1
            return
        self._meta_sequence = max(self._meta_sequence, body.sequence)
        total = sum(len(value) for key, (_, value, _) in self.own_meta.items() if key != body.key) + len(body.value)
        if body.key in self._set_here and own is not None:
            self._publish_own(body.key, own[1])
        elif total > core.config.meta_bytes_max:
            self._publish_own(body.key, b"")
        else:
            encoded = encode(message)
            core.port.emit(Persist(_META_JOURNAL + body.key.encode(), encoded))
            self._hold_own(body, message.body, encoded)

    def _gives_up_a_key(self, newer: MetaBody) -> bool:
        """Drop the oldest own key for a newer one, as the peers have done, unless this life has set it."""
        key = min(self.own_meta, key=lambda one: (self.own_meta[one][0], one))
        if self.own_meta[key][0] >= newer.sequence or key in self._set_here:
            return False
        _, _, encoded = self.own_meta.pop(key)
        new = (self.own_meta_fp - fingerprint(_signed_body(encoded))) & _MASK
        self.core.table.adjust(META, self.own_meta_fp, new)
        self.own_meta_fp = new
        self.core.port.emit(Persist(_META_JOURNAL + key.encode(), None))
        return True

    def answered(self, entries: list[bytes], asker: bytes) -> list[bytes]:
        """Entries with which a comparison is answered: of each other member up to a bound, the newest first.

        Where one member says more than the others may keep of it, the newest tell the peer which older ones it lacks
        no more.
        """
        bodies = [(decode_body(_META_BODY, _signed_body(encoded)), encoded) for encoded in entries]
        bodies.sort(key=lambda one: -one[0].sequence)
        return [
            encoded
            for body, encoded in bodies
            if self.core.may_repair(body.node, len(encoded), asker)
            or (body.node == asker and self._may_give_back(body, len(encoded)))
        ]

    def _may_give_back(self, body: MetaBody, size: int) -> bool:
        """Whether its author gets this back: it may have lost what earlier lives said, never what this one does."""
        core = self.core
        member = core.table.by_node.get(body.node)
        if member is None or body.sequence >> BOOT_SHIFT >= member.incarnation >> BOOT_SHIFT:
            return False
        return core.relays.may_give_back(body.node, size, len(core.table), core.now_ns)

    def own_meta_items(self) -> dict[int, Member | bytes]:
        """Fingerprint to encoded entry, of this node alone."""
        return {fingerprint(_signed_body(encoded)): encoded for _, _, encoded in self.own_meta.values()}

    def meta_items(self) -> dict[int, Member | bytes]:
        """Fingerprint to encoded entry, of all live members."""
        held: dict[int, Member | bytes] = {}
        tables = [self.own_meta]
        tables += [
            member.repair.meta
            for member in self.core.table.by_node.values()
            if member.repair.counted and member.repair.meta
        ]
        for table in tables:
            for _, _, encoded in table.values():
                held[fingerprint(_signed_body(encoded))] = encoded
        return held


def _signed_body(encoded: bytes) -> bytes:
    """What the author signed of an entry that is held."""
    return msgspec.msgpack.decode(encoded, type=MetaEntry).body
