"""The desk's side of joining: what a question deserves, and what becomes of it in the fleet's folder; no sockets.

    token not known, or the question does not open     refused in one byte
    a question that came before                        the same, and it counts for nobody
    over, used by another key, name in force, revoked  refused in words
    certified by it once, and replaced or void since   the same
    enough enrol keys at this desk                     certified at once, and the enrolment is the answer
    otherwise                                          FLEET/pending/enrol-NAME for officers to sign; "waiting"

The token is bound to the key before anything is signed, so that of two devices with one token one is enrolled at most,
also where the desk is killed in between. Every step can be repeated, but the certificate: a token stands for one, so
that a key which was replaced, or which a new root does not stand behind, is not let in again by the token it once had.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from swarmd.errors import DaemonError
from swarmd.identity.desk import prepare_certificate, submit
from swarmd.identity.enrolment import make_enrolment
from swarmd.identity.fleet import Fleet
from swarmd.identity.join_channel import REFUSED, Answer, JoinError, open_question, seal_answer, token_id
from swarmd.identity.join_tokens import TOKENS_MAX, Kept, keep, kept_of
from swarmd.identity.officers import PublicHalf
from swarmd.identity.prepared import Prepared, add_signature, missing, read, requirements, write_new
from swarmd.identity.role_keys import FleetError, make_folder
from swarmd.identity.signers import Signer
from swarmd.rates import TokenBuckets
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.trust.identity import read_certificate
from swarmd_protocols.trust.roots import root_digest

ASKED_PER_S, ASKED_BURST = 2, 8
"""Questions about one token that are answered, per second and at once: a device that waits asks every two seconds."""
HEARD_MAX = 8_192
"""Questions remembered, so that one which is played again is told from a device's next: an hour's of a token, 1 MB."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one question."""

    frame: bytes
    """The answer as it travels."""
    told: str
    """For the officer at the desk."""
    enrolled: bytes = b""
    """The node that got its enrolment."""


class Desk:
    """Answers questions for one fleet's folder."""

    def __init__(self, folder: Path, signers: Sequence[Signer] = ()) -> None:
        """Open the fleet.

        Args:
            folder: Its folder.
            signers: Enrol keys that may sign without being asked again; with too few, requests wait for officers.
        """
        self.folder = folder
        self._signers = list(signers)
        self._buckets = TokenBuckets(ASKED_PER_S, ASKED_BURST, TOKENS_MAX)
        self._heard: OrderedDict[bytes, None] = OrderedDict()
        """Heads of the questions that were answered."""
        Fleet(folder)

    def answer(self, frame: bytes) -> Outcome:
        """Answer a question from anybody; never raises for what it holds."""
        try:
            kept = kept_of(self.folder, token_id(frame))
            if kept is None:
                return Outcome(REFUSED, "a token that is not known here was refused")
            asked = open_question(frame, bytes.fromhex(kept.key))
        except JoinError as error:
            return Outcome(REFUSED, f"refused: {error}")
        if asked.head in self._heard:
            return Outcome(REFUSED, f"a question for {kept.name} was played again, and refused")
        if not self._buckets.take(token_id(frame), time.monotonic_ns()):
            return Outcome(REFUSED, f"{kept.name} asks more often than a device does")
        self._heard[asked.head] = None
        if len(self._heard) > HEARD_MAX:
            self._heard.popitem(last=False)
        half = PublicHalf(asked.public, kept.name)
        who = f"{kept.name} with the key {half.fingerprint}"
        try:
            answer = self._decide(token_id(frame), kept, half)
        except (DaemonError, ProtocolError) as error:
            answer = Answer("refused", str(error)[:1_024])
        enrolled = node_id_of(half.public) if answer.kind == "enrolled" else b""
        try:
            sealed = seal_answer(asked, answer)
        except JoinError as error:
            return Outcome(REFUSED, f"refused: {error}")
        return Outcome(sealed, f"{who}: {answer.kind}; {answer.text}", enrolled)

    def _decide(self, number: bytes, kept: Kept, half: PublicHalf) -> Answer:
        fleet = Fleet(self.folder)
        node = node_id_of(half.public)
        if kept.public and kept.public != half.public.hex():
            first = PublicHalf(bytes.fromhex(kept.public), kept.name).fingerprint
            raise FleetError(
                f"this token was used by another device, with the key {first}; if that was nobody of yours, revoke "
                f"{kept.name} and make another token"
            )
        if node in fleet.trust_of(kept.swarm).revoked:
            raise FleetError(f"this device's key is {fleet.trust_of(kept.swarm).why_out(NodeId(node))}")
        if not kept.public and time.time() > kept.expires_s:
            raise FleetError("this token is over; ask for another")
        held = [one.node for one in fleet.nodes(kept.swarm) if one.name == kept.name]
        is_held = bool(held) and fleet.trust_of(kept.swarm).certified(NodeId(held[0])) is not None
        if is_held and held[0] != node and not kept.replace:
            raise FleetError(f"{kept.name} is node {held[0].hex()} already; ask for another name, or a token --replace")
        is_in_force = is_held and held[0] == node
        if not is_in_force and was_certified(self.folder, kept, node):
            raise FleetError(
                f"this token has let the device in once, and its certificate as {kept.name} is in force no longer; "
                "if it is to come back, make another token"
            )
        if not kept.public:
            keep(self.folder, number, msgspec.structs.replace(kept, public=half.public.hex()))
        if not is_in_force:
            waiting = self._certify(fleet, kept, half)
            if waiting:
                return Answer("waiting", waiting)
        pending = self.folder / "pending" / f"enrol-{kept.name}"
        if pending.exists() and _is_for(read(pending), half, fleet.roots()[-1]):
            pending.unlink()
        enrolment = make_enrolment(Fleet(self.folder), kept.swarm, kept.name)
        return Answer("enrolled", f"node {node.hex()} of swarm {kept.swarm}", enrolment)

    def _certify(self, fleet: Fleet, kept: Kept, half: PublicHalf) -> str:
        """Sign and submit; what is waited for where too few keys are here."""
        prepared = prepare_certificate(fleet, kept.swarm, kept.name, half.public, kept.roles)
        concerned = {key for one in requirements(prepared) for key in one.keys}
        for signer in self._signers:
            if missing(prepared) and signer.half.key_id in concerned:
                prepared = add_signature(prepared, signer)
        if not missing(prepared):
            submit(self.folder, prepared)
            return ""
        path = self.folder / "pending" / f"enrol-{kept.name}"
        make_folder(path.parent)
        if path.exists() and not _is_for(read(path), half, fleet.roots()[-1]):
            path.unlink()  # Of a token that was replaced, or for officers who were.
        if not path.exists():
            write_new(path, prepared)
        return f"officers sign {path.name}: {'; '.join(missing(prepared))}"[:1_024]


def was_certified(folder: Path, kept: Kept, node: bytes) -> bool:
    """Whether the fleet's folder holds a certificate of this node under the token's name, in force or not."""
    found = (folder / "swarms" / kept.swarm).glob(f"node-{kept.name}-{node.hex()[:8]}-*")
    known = [read_certificate(path.read_bytes()) for path in found]
    return any((one.node, one.name) == (node, kept.name) for one in known)


def _is_for(prepared: Prepared, half: PublicHalf, root: bytes) -> bool:
    return half.public in prepared.payload and root_digest(prepared.root) == root_digest(root)
