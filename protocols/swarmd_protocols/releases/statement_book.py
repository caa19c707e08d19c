"""The statements about models that a node holds: verified, joined, kept in the journal, judged anew as the chain grows.

`versions.py` says what is kept and what counts; this is who holds it. Journal keys: `s/<digest>`.
"""

from collections.abc import Mapping

from swarmd_protocols.effects import Alarm, Persist, Rejected, StateChanged
from swarmd_protocols.errors import IdentityError, WireError
from swarmd_protocols.releases import requests, versions
from swarmd_protocols.releases.requests import NAME
from swarmd_protocols.subprotocol import SubEffect
from swarmd_protocols.trust.envelopes import REMOVALS, Envelope, decode_envelope
from swarmd_protocols.trust.view import TrustView

STATEMENT = b"releases/s/"
"""Journal key of a statement, its digest after it."""


def heard(kind: str, digest: bytes, accepted: bool, source: str, reason: str) -> StateChanged:
    """What the audit of the daemon keeps of a statement from outside."""
    return StateChanged(NAME, requests.Heard(kind, digest, accepted, source, reason))


class StatementBook:
    """See the module.

    Args:
        trust: Who may say what.
    """

    def __init__(self, trust: TrustView) -> None:
        self._trust = trust
        self._chain = trust.chain
        self._revision = trust.revision
        self._epoch = trust.chain.current.epoch
        self.entries: dict[bytes, versions.Entry] = {}
        self._restored: dict[bytes, bytes] = {}
        """What the journal said, until the start."""
        self._seen: tuple[object, ...] = ()
        """What the view was made of: it is made again only when that has changed."""

    def restore(self, key: bytes, record: bytes) -> None:
        """Take a record of the journal in.

        Raises:
            IdentityError: It does not hold any longer.
            WireError: It is no statement.
        """
        self._restored[key] = record
        self.admit(decode_envelope(record))

    def mend(self) -> list[SubEffect]:
        """Make the journal say what is held, where it was damaged or no longer counts; once, at the start."""
        held = {STATEMENT + digest: entry.envelope.encode() for digest, entry in self.entries.items()}
        effects: list[SubEffect] = [Persist(key, None) for key in sorted(self._restored.keys() - held.keys())]
        effects += [Persist(key, one) for key, one in held.items() if self._restored.get(key) != one]
        self._restored = {}
        return effects

    def admit(self, envelope: Envelope) -> bool:
        """Verify and join; True when the state grew.

        Raises:
            IdentityError: The signatures do not do.
            WireError: It says nothing that is known.
        """
        known = self.entries.get(envelope.digest)
        if known is not None and set(envelope.signatures) <= set(known.envelope.signatures):
            return False
        entry = versions.admit(envelope, self._chain, known)
        # With the signatures of `known` already, as many as there is room for: not all of both.
        joined = versions.prune({**self.entries, envelope.digest: entry}, self._chain.current.kept)
        grew = joined != self.entries
        self.entries = joined
        return grew

    def hear(self, data: bytes, source: str) -> tuple[bool, list[SubEffect]]:
        """One encoded statement from outside, and whether it was news; never raises."""
        try:
            envelope = decode_envelope(data)
        except WireError as error:
            return False, [Rejected(source, str(error)), heard("?", b"", False, source, str(error))]
        try:
            grew = self.admit(envelope)
        except (IdentityError, WireError) as error:
            refused = heard(envelope.kind, envelope.digest, False, source, str(error))
            return False, [Rejected(source, str(error)), refused]
        if not grew:
            return False, []
        return True, [heard(envelope.kind, envelope.digest, True, source, "")]

    def hear_root(self, statement: bytes, source: str) -> tuple[bool, list[SubEffect]]:
        """One encoded root from outside, and whether it was news; never raises."""
        try:
            return self._trust.add("root", statement), []
        except IdentityError as error:
            return False, [Rejected(source, str(error))]

    def written(self, before: Mapping[bytes, versions.Entry]) -> list[SubEffect]:
        """Make the journal, which says what was held before, say what is held; what came and went again is neither."""
        effects: list[SubEffect] = [
            Persist(STATEMENT + digest, entry.envelope.encode())
            for digest, entry in self.entries.items()
            if before.get(digest) != entry
        ]
        return effects + [Persist(STATEMENT + digest, None) for digest in sorted(before.keys() - self.entries.keys())]

    def judge(self) -> list[SubEffect]:
        """Judge every statement anew when what counts has changed."""
        if self._revision == self._trust.revision:
            return []
        self._revision = self._trust.revision
        before, self.entries = self.entries, versions.judged(self.entries, self._chain)
        effects = self.written(before)
        epoch, self._epoch = self._epoch, self._chain.current.epoch
        fell = [before[one].envelope for one in sorted(before.keys() - self.entries.keys())]
        names = ", ".join(f"{one.kind} {one.digest.hex()[:8]}" for one in fell if one.kind in REMOVALS)
        if names and epoch == self._epoch:
            text = f"root {self._chain.current.version} does not name {names}: sign it with the new keys"
            effects.append(Alarm("release-removal-fell", text))
        return effects

    def look(self) -> versions.View | None:
        """The view made again, or None when nothing has changed that it is made of: that checks every signature."""
        signatures = tuple(len(entry.envelope.signatures) for entry in self.entries.values())
        made_of = (self._revision, *sorted(self.entries), signatures)
        if made_of == self._seen:
            return None
        self._seen = made_of
        return versions.view_of(self.entries, self._chain)
