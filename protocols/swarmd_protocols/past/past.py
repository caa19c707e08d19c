"""The sub-protocol `past`: a giver and a fetcher of signed pages of what happened, behind one name.

A page (`pages.py`) is a minute or so of one node's own events, places and counters, signed by it. Who came late asks
whoever keeps pages for those of the time before (`messages.py`). The driver keeps them (`requests.py`); what is given
to whom is `giving.py`'s, what is asked of whom `fetching.py`'s. Nothing is journalled, said around or compared: a node
that nobody asks and that wants nothing costs nothing.
"""

from collections.abc import Callable, Sequence

import msgspec

from swarmd_protocols.effects import Rejected, SetTimer, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.past import messages, requests
from swarmd_protocols.past.fetching import TICK_NS, Fetcher, Stretch
from swarmd_protocols.past.giving import GIVE, NAME, Giver, GivingConfig
from swarmd_protocols.releases.allowance import Allowance
from swarmd_protocols.releases.upload_budget import UploadBudget
from swarmd_protocols.state.crdt.batch import Signer
from swarmd_protocols.subprotocol import Peer, SubEffect
from swarmd_protocols.trust.view import TrustView

_TICK: TimerKey = (NAME, "tick")
QUESTIONS_PER_S, QUESTIONS_BURST = 8, 64
"""Questions of one member that are looked at: an honest one has one open at a time, and each costs what a second's
share of the default rate pays for eight times."""


class PastConfig(msgspec.Struct, frozen=True):
    """What a node does; it may differ between nodes."""

    giving: GivingConfig = GivingConfig()


class PastProtocol:
    """See the module."""

    def __init__(
        self,
        node: NodeId,
        signer: Signer,
        trust: TrustView,
        config: PastConfig,
        physical_ms: Callable[[int], int],
    ) -> None:
        """Keep and want nothing yet.

        Args:
            node: This node.
            signer: Its key; verifies others' pages.
            trust: Who counts, and with which roles.
            config: What is given.
            physical_ms: Swarm time in milliseconds since 2020 at a moment of the monotonic clock.
        """
        self._trust = trust
        self._giver = Giver(node, config.giving, self._roles_of, trust.certificate_statement)
        self._fetcher = Fetcher(node, signer, trust, physical_ms)
        self._members: set[NodeId] = set()
        self._heard = Allowance(QUESTIONS_PER_S, QUESTIONS_BURST)
        self._is_ticking = False

    # --- what can be read -------------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[str, int]:
        """Pages and bytes given and fetched, and what was refused."""
        return {**self._giver.counts, **self._fetcher.counts}

    @property
    def traffic(self) -> UploadBudget:
        """What gives way to everything else that the node sends."""
        return self._giver.budget

    def counts_now(self, author: NodeId) -> bool:
        """Whether an author's pages may be shown: it has a certificate that holds."""
        return self._trust.certified(author) is not None

    def stretches(self, from_ms: int, to_ms: int) -> list[Stretch]:
        """Of which times everybody's past is here, and why not of the others."""
        return self._fetcher.stretches(from_ms, to_ms)

    # --- SubProtocol ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """The driver says what is kept, and what is wanted."""
        return []

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Whom to give to, and whom to ask."""
        self._members = {peer.node for peer in peers if peer.public_key}
        self._giver.on_peers(self._members)
        self._fetcher.on_peers(peers, now_ns)
        return []

    def on_trust(self, now_ns: int) -> list[SubEffect]:
        """Whoever is shut out has no past here any more."""
        return self._fetcher.on_trust()

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """A word of the driver (`requests.py`); raises `StateError` for anything else."""
        match request:
            case requests.Rows():
                return self._giver.on_rows(request, now_ns)
            case requests.Pages():
                return self._giver.on_pages(request, now_ns)
            case requests.Held():
                return self._fetcher.on_held(request)
            case requests.Want():
                self._fetcher.on_want(request)
                return self._arm(now_ns)
            case _:
                raise StateError(f"`past` knows no request {type(request).__name__}")

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """The giver's budget has room again, or it is time to look what is missing."""
        if key == GIVE:
            return self._giver.on_timer(now_ns)
        if key != _TICK:
            return []
        self._is_ticking = False
        return self._fetcher.on_tick(now_ns) + self._arm(now_ns)

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A question, or an answer; whatever the bytes are, nothing is raised."""
        if sender not in self._members:
            return []
        try:
            message = messages.decode_message(payload)
        except WireError as error:
            return [Rejected(sender.hex(), str(error))]
        match message:
            case messages.List() | messages.Ask():
                if not self._heard.take(sender, 1, now_ns):
                    return [Rejected(sender.hex(), "asks for the past more often than one member may")]
                if isinstance(message, messages.List):
                    return self._giver.on_list(sender, message, now_ns)
                return self._giver.on_ask(sender, message, now_ns)
            case messages.Listing():
                return self._fetcher.on_listing(sender, message, now_ns)
            case messages.Answer():
                return self._fetcher.on_answer(sender, message, now_ns)
            case messages.Deny():
                return self._fetcher.on_deny(sender, message, now_ns)

    def summary(self) -> bytes:
        """Nothing here is compared."""
        return b""

    def on_summary(self, sender: NodeId, summary: bytes, now_ns: int) -> list[SubEffect]:
        """Nothing here is compared."""
        return []

    def piggyback(self, budget_bytes: int, now_ns: int) -> list[bytes]:
        """Nothing here rides along."""
        return []

    # --- inside -----------------------------------------------------------------------------------------------------

    def _roles_of(self, node: NodeId) -> tuple[str, ...] | None:
        certificate = self._trust.certified(node) if node in self._members else None
        return None if certificate is None else certificate.roles

    def _arm(self, now_ns: int) -> list[SubEffect]:
        if self._is_ticking or not self._fetcher.is_wanting:
            return []
        self._is_ticking = True
        return [SetTimer(_TICK, now_ns + TICK_NS)]
