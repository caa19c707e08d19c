"""Operators at the ground view: who has proved to hold a key, and what they do with it.

    page: challenge ──▶ signs it with the operator's key ──▶ login ──▶ token ──▶ draft ──▶ signs it ──▶ review

Rules this file keeps:

- Nobody acts without a token, and a token is given only for a signature by a key that the newest root names for the
  role operator. It ends with the server, after `IDLE_S` without use, and as soon as the root names the key no more.
- A review is the operator's own statement; the server makes its words, and cannot sign it.
- A review is taken only on the revision that its operator saw: where others have said something meanwhile it is
  refused, so that nobody overrules what they did not know. Both are in the audit.
- What acts on members is done with this node's own verbs, or through the door of the member (docs/remote.md).
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from swarmd.api.control import ControlClient
from swarmd.api.daemon import BusEvent, Operations
from swarmd.api.remote import DEFAULT_PORT, Remote
from swarmd.api.reviewing import draft
from swarmd.errors import ControlError, DaemonError
from swarmd.ground.audit import Audit
from swarmd.ground.facts import REVIEWS_MAX
from swarmd.ground.rows import Challenge, Done, Draft, Session
from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.ids import WAYS, NodeId
from swarmd_protocols.state.crdt.reviews import BY_MAX_CHARS, basis_of, join_review, message_of, open_review
from swarmd_protocols.state.observations import ObjectChanged, SayReview
from swarmd_protocols.trust.envelopes import key_id, signed_bytes

LOGIN_KIND = "ground-login"
"""What the signature of a login begins with, so that no statement passes for one."""
CHALLENGE_S = 120.0
"""Seconds in which a challenge is answered: an agent may ask a person first."""
_EXPIRY_BYTES, _NONCE_BYTES, _MAC_BYTES = 8, 8, 16
"""Of a challenge: until when it holds (milliseconds of this desk's clock), what makes it its own, and who made it."""
USED_MAX = 1_024
"""Answered challenges that are remembered, of rightly and of wrongly answered ones. The former stay until they end:
more sign-ins than that in two minutes are refused."""
SESSIONS_MAX = 16
"""Tokens at once; the one used longest ago goes."""
IDLE_S = 12 * 3600.0
"""Seconds without use after which a token ends: a working day."""
REFUSED_BURST, REFUSED_PER_S = 16, 1 / 600
"""Logins by keys of no operator that are written down: the audit keeps 72 MB, and who can make it grow without end
pushes out of it what operators did. At one in ten minutes that takes five years."""
ACTS = ("dismiss", "away", "eye_start", "eye_stop")
DOOR_S = 10.0
"""Seconds that a member's door may take."""
_CRYPTO = NaClCrypto()


class NotAllowed(DaemonError):
    """Whoever asks has no token that holds; nothing was done."""


class Stale(DaemonError):
    """Others have said something meanwhile; nothing was done."""


@dataclass(slots=True)
class _Login:
    public: bytes
    name: str
    used_s: float

    @property
    def key(self) -> str:
        """How people know the key."""
        return key_id(self.public).hex()[:8]


class Desk:
    """What operators do through one ground station.

    Args:
        daemon: Whose swarm.
        audit: Where everything is written down.
        clock: Monotonic seconds.
    """

    def __init__(self, daemon: Operations, audit: Audit, clock: Callable[[], float] = time.monotonic) -> None:
        self._daemon = daemon
        self.audit = audit
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        """Makes challenges that need not be kept: those that nobody answers take neither room nor another's place."""
        self._used: dict[str, float] = {}
        """Challenges that an operator answered, and until when they would hold."""
        self._spoiled: dict[str, None] = {}
        """Challenges that were answered wrongly; the oldest goes: who cannot sign gains nothing by another try."""
        self._logins: dict[str, _Login] = {}
        self._refusals = TokenBucket(REFUSED_PER_S, REFUSED_BURST)
        self._refused = 0
        """Logins by keys of no operator since one was last written down."""

    async def run(self) -> None:
        """Hear what operators say anywhere, and write it down, until cancelled."""
        end = self._daemon.subscribe(self._on_event)
        try:
            await self.audit.run(self._hear_all)
        finally:
            end()

    async def _hear_all(self) -> None:
        """Whatever operators have said of what is there."""
        for part in self._daemon.in_parts.objects():
            for view in part:
                self.audit.heard(view.object_id, view.reviews)
            await asyncio.sleep(0)

    def _on_event(self, event: BusEvent) -> None:
        match event:
            case StateChanged(detail=ObjectChanged(_, view, _)) if view.reviews:
                self.audit.heard(view.object_id, view.reviews)
            case _:
                pass

    # --- who it is --------------------------------------------------------------------------------------------------

    def challenge(self, origin: str) -> Challenge:
        """Something that only the holder of a key can answer.

        Args:
            origin: The page's: an answer for another server does not do here.
        """
        until_ms = round((self._clock() + CHALLENGE_S) * 1_000)
        made = until_ms.to_bytes(_EXPIRY_BYTES, "big") + secrets.token_bytes(_NONCE_BYTES)
        value = (made + self._mac(made)).hex()
        return Challenge(value, login_message(origin, value).hex())

    def _mac(self, made: bytes) -> bytes:
        return blake2b(made, digest_size=_MAC_BYTES, key=self._secret, person=b"ground-login").digest()

    def _until_s(self, challenge: str) -> float:
        """Until when a challenge holds; 0 where this desk did not make it."""
        try:
            value = bytes.fromhex(challenge)
        except ValueError:
            return 0.0
        made, mac = value[:-_MAC_BYTES], value[-_MAC_BYTES:]
        if challenge != value.hex() or not hmac.compare_digest(mac, self._mac(made)):
            return 0.0
        return int.from_bytes(made[:_EXPIRY_BYTES], "big") / 1_000

    def _use(self, challenge: str) -> None:
        """It is answered, and not again."""
        now_s = self._clock()
        self._used = {one: until_s for one, until_s in self._used.items() if until_s >= now_s}
        if len(self._used) >= USED_MAX:
            raise NotAllowed(f"{USED_MAX} sign-ins in {CHALLENGE_S:.0f} s are too many; wait as long")
        self._used[challenge] = self._until_s(challenge)

    async def login(self, origin: str, public_key: bytes, challenge: str, signature: bytes, name: str) -> Session:
        """Give a token for an answer.

        Raises:
            NotAllowed: The answer does not hold, or the key is no operator's.
        """
        was_answered = challenge in self._used or challenge in self._spoiled
        if was_answered or self._until_s(challenge) < self._clock():
            raise NotAllowed("the challenge is unknown or too old; sign in again")
        self._spoiled[challenge] = None
        if len(self._spoiled) > USED_MAX:
            del self._spoiled[next(iter(self._spoiled))]
        if not _CRYPTO.verify(public_key, login_message(origin, challenge), signature):
            raise NotAllowed("the answer is not signed by that key")
        login = _Login(public_key, name[:BY_MAX_CHARS] if name.isprintable() else "", self._clock())
        if public_key not in self._daemon.trust().operators:
            await self._write_refused(login)
            raise NotAllowed(
                f"the newest root that this node knows does not name the key {login.key} for the role operator: "
                "officers add it with swarmd keys prepare root (docs/keys.md)"
            )
        self._use(challenge)
        del self._spoiled[challenge]
        await self.audit.did("login", login.name, login.key, outcome="taken")
        token = secrets.token_urlsafe(32)
        self._logins[token] = login
        if len(self._logins) > SESSIONS_MAX:
            del self._logins[min(self._logins, key=lambda one: self._logins[one].used_s)]
        return Session(token, login.name or login.key, login.key)

    async def _write_refused(self, login: _Login) -> None:
        """Write down who is no operator: a few, then now and then, since anybody on this machine can make keys."""
        self._refused += 1
        if self._refusals.take(round(self._clock() * 1e9)):
            count, self._refused = self._refused, 0
            await self.audit.did("login", login.name, login.key, outcome="refused: no operator", count=count)

    def logout(self, token: str) -> None:
        """End a token."""
        self._logins.pop(token, None)

    def _who(self, token: str) -> _Login:
        login = self._logins.get(token)
        if login is None or login.used_s + IDLE_S < self._clock():
            self._logins.pop(token, None)
            raise NotAllowed("sign in with an operator's key first")
        if login.public not in self._daemon.trust().operators:
            del self._logins[token]
            raise NotAllowed("the newest root does not name this key for the role operator")
        login.used_s = self._clock()
        return login

    # --- reviews ----------------------------------------------------------------------------------------------------

    def draft(self, token: str, object_id: str, verdict: str, text: str, shown: Sequence[str]) -> Draft:
        """The bytes that the operator is to sign.

        Args:
            token: Of a login.
            object_id: Which object.
            verdict: `confirm`, `reject`, `relabel`, `withdraw` or `note`.
            text: The right label, or the words of a note.
            shown: Digests of the statements about it that the operator sees.

        Raises:
            NotAllowed: The token does not hold.
            Stale: Others have said something that the operator does not see.
            DaemonError: There is no such object, or the review is out of bounds.
        """
        login = self._who(token)
        subject = self._daemon.in_parts.review_subject(object_id)
        if subject is None:
            raise DaemonError("no object of that id is shown here; it may have expired")
        if len(shown) < REVIEWS_MAX and basis_of(_digests(shown)) != subject.basis:
            raise Stale("others have said something of it meanwhile; look at it again")
        made = draft(subject, verdict, text, time.time_ns() // 1_000_000, login.name)
        return Draft(made.payload.hex(), message_of(made.payload).hex(), made.words())

    async def review(self, token: str, object_id: str, payload: bytes, signature: bytes) -> Done:
        """Take what the operator has signed.

        Raises:
            NotAllowed: The token does not hold, or it is another key's.
            Stale: Others have said something since the draft.
            DaemonError: It does not hold.
        """
        login = self._who(token)
        statement = join_review(login.public, signature, payload)
        said = open_review(statement)
        subject = self._daemon.in_parts.review_subject(object_id)
        if subject is None or subject.basis != said.review.basis:
            await self.audit.reviewed(statement, object_id, "refused: others have said something meanwhile")
            raise Stale("others have said something of it meanwhile; look at it again")
        is_new = self.audit.expect(said.digest)
        try:
            self._daemon.ask("state", SayReview(statement))
        except ProtocolError as error:
            if is_new:
                self.audit.expect_no_more(said.digest)
            await self.audit.reviewed(statement, object_id, f"refused: {error}")
            raise DaemonError(str(error)) from error
        # The swarm has it; were it not written down, that is said.
        await self.audit.reviewed(statement, object_id, "taken")
        return Done(said.digest.hex())

    # --- members ----------------------------------------------------------------------------------------------------

    async def act(self, token: str, what: str, member: str, seconds: float) -> Done:
        """Dismiss a failed member, have one go away for a while, or start or stop its eye.

        Raises:
            NotAllowed: The token does not hold.
            DaemonError: It is refused, or the member's door does not open.
        """
        login = self._who(token)
        if what not in ACTS:
            raise DaemonError(f"no act {what[:20]!r}; there are {', '.join(ACTS)}")
        # Written before it is done: what cannot be written down is not done.
        await self.audit.did(what, login.name, login.key, member=member, seconds=int(seconds), outcome="begun")
        try:
            answer = await self._perform(what, member, seconds, f"{login.name or 'operator'} {login.key}")
        except (DaemonError, ProtocolError) as error:
            await self.audit.did(what, login.name, login.key, member=member, outcome=f"refused: {error}")
            raise DaemonError(str(error)) from error
        await self.audit.did(what, login.name, login.key, member=member, outcome="done")
        return Done(answer)

    async def _perform(self, what: str, member: str, seconds: float, by: str) -> str:
        daemon = self._daemon
        if what == "dismiss":
            daemon.command("forget", {"name": member}, by)
            return f"{member} is off the lists, everywhere, until it returns"
        verb, arguments = _verb(what, seconds)
        if member == daemon.info().name:
            daemon.command(verb, arguments, by)
            return f"{member}: {what}"
        found = [one for one in daemon.members() if one.name == member]
        if not found:
            raise DaemonError(f"no member {member!r} is known here")
        if len(found) > 1:
            raise DaemonError(f"{len(found)} members are called {member!r}")
        host = found[0].address.split(WAYS)[0].rpartition(":")[0].strip("[]")
        await asyncio.to_thread(_through_door, Remote(host, DEFAULT_PORT), found[0].node, verb, arguments)
        return f"{member}: {what}, through its door at {host}"


def login_message(origin: str, challenge: str) -> bytes:
    """What the answer to a challenge signs."""
    return signed_bytes(LOGIN_KIND, f"{origin}\0{challenge}".encode())


def _verb(what: str, seconds: float) -> tuple[str, dict[str, object]]:
    if what == "away":
        return "away", {"seconds": seconds}
    return what, {}


def _through_door(door: Remote, member: NodeId, verb: str, arguments: dict[str, object]) -> None:
    try:
        with ControlClient(door, DOOR_S) as client:
            # A record says only its own address, and nobody proves one: what is meant for this member is for no other.
            there = client.call("status")
            if there.get("node_id") != member.hex():
                raise DaemonError(
                    f"the door at {door.host} is that of {str(there.get('node'))[:64]!r}; nothing was done"
                )
            client.call(verb, **arguments)
    except ControlError as error:
        raise DaemonError(f"its door does not open: {error}") from error


def _digests(shown: Sequence[str]) -> list[bytes]:
    try:
        return [bytes.fromhex(one) for one in shown]
    except ValueError as error:
        raise DaemonError("a digest is written in hexadecimal digits") from error
