"""The sub-protocol `thumbs`: pictures of the own eye on a shelf, pictures of others on demand.

It moves bytes of one form (`form.py`) and decides who gets how many; `requests.py` has what the daemon asks and is
told, `messages.py` what goes over the air. It is only there where the configuration wants it: a node without it keeps
none, gives none and is asked for none, since none of its sightings names one.

Only members are answered (`on_peers`): a node that is revoked or was never enrolled gets nothing. Own pictures are
journalled, so that they outlive a change of the battery; those of others are not.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from swarmd_protocols.effects import Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError, WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Peer, Priority, Send, SubEffect
from swarmd_protocols.thumbs.fetching import NAME, FetchConfig, Fetching
from swarmd_protocols.thumbs.form import NAME_BYTES, name_of, problem_of
from swarmd_protocols.thumbs.messages import Ask, Here, Lack, decode, encode
from swarmd_protocols.thumbs.requests import JOURNAL, Fetch, Shelve, ThumbLearned
from swarmd_protocols.thumbs.shelf import TURN_NS, Shelf, ShelfConfig

SWEEP_NS = 60_000_000_000
"""Between two looks at what no sighting names any more, nanoseconds: sightings last an hour at least."""
_SWEEP: TimerKey = (NAME, "sweep")
_STEP: TimerKey = (NAME, "step")
_TURN: TimerKey = (NAME, "turn")


@dataclass(frozen=True, slots=True)
class ThumbsConfig:
    """What this device does; it may differ between nodes."""

    shelf: ShelfConfig = field(default_factory=ShelfConfig)
    fetch: FetchConfig = field(default_factory=FetchConfig)


class Thumbs:
    """See the module.

    Args:
        node: This node.
        config: Bounds.
        restored: The journal's records of an earlier life that begin with `JOURNAL`; others are left alone.
        live: Names of pictures that own sightings bear.
        authors_of: Nodes a sighting of which names a picture, as far as they are known here.
    """

    def __init__(
        self,
        node: NodeId,
        config: ThumbsConfig,
        restored: Mapping[bytes, bytes],
        live: Callable[[], Container[bytes]],
        authors_of: Callable[[bytes], Sequence[NodeId]],
    ) -> None:
        own = {key.removeprefix(JOURNAL): jpeg for key, jpeg in restored.items() if key.startswith(JOURNAL)}
        self._shelf = Shelf(config.shelf, own, live)
        self._bad = [JOURNAL + name for name in own if self._shelf.get(name) is None]
        self._fetching = Fetching(node, config.fetch, authors_of)
        self._members: frozenset[NodeId] = frozenset()
        self._step_ns: int | None = None
        self._is_sweeping = False
        self._is_turning = False
        self._counts: Counter[str] = Counter()

    # --- what can be read -------------------------------------------------------------------------------------------

    def counts(self) -> Counter[str]:
        """What happened since the start."""
        return self._counts + self._fetching.counts

    def own(self, name: bytes) -> bytes | None:
        """A picture of the own eye by its name; None: it is not here."""
        return self._shelf.get(name)

    def held(self) -> dict[str, int]:
        """How many pictures there are, of this node and of others, and their bytes."""
        shelf, fetching = self._shelf, self._fetching
        own, others = (len(shelf), shelf.size_bytes), (fetching.held, fetching.size_bytes)
        return {"own": own[0], "own_bytes": own[1], "others": others[0], "others_bytes": others[1]}

    # --- SubProtocol ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The first element of timer keys and the prefix of journal keys."""
        return NAME

    def start(self, now_ns: int) -> list[SubEffect]:
        """What the journal held in vain goes."""
        bad, self._bad = self._bad, []
        return [*(Persist(key, None) for key in bad), *self._keep_sweeping(now_ns)]

    def on_peers(self, peers: Sequence[Peer], now_ns: int) -> list[SubEffect]:
        """Who is answered, and who can be asked."""
        self._members = frozenset(peer.node for peer in peers if peer.public_key)
        self._shelf.forget_askers(self._members)
        near = frozenset(peer.node for peer in peers if peer.reachable and not peer.far and peer.public_key)
        return self._armed(self._fetching.know_near(near, now_ns), now_ns)

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """`Shelve` or `Fetch`; raises `StateError` for anything else, and for what is no picture or of no sighting."""
        match request:
            case Shelve(jpeg):
                return [*self._put(jpeg), *self._keep_sweeping(now_ns)]
            case Fetch(name):
                return [*self._armed(self._fetch(name, now_ns), now_ns), *self._keep_sweeping(now_ns)]
            case _:
                raise StateError(f"`{NAME}` knows no request {type(request).__name__}")

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """A look at what waits, or at what nobody names any more."""
        if key == _STEP and self._step_ns is not None and now_ns >= self._step_ns:
            self._step_ns = None
            return self._armed(self._fetching.step(now_ns), now_ns)
        if key == _TURN:
            self._is_turning = False
            return self._answer(now_ns)
        if key == _SWEEP and self._is_sweeping:
            self._is_sweeping = False
            self._fetching.sweep()
            gone = self._shelf.sweep()
            return [*(Persist(JOURNAL + name, None) for name in gone), *self._keep_sweeping(now_ns)]
        return []

    def on_message(self, sender: NodeId, payload: bytes, now_ns: int) -> list[SubEffect]:
        """A question or an answer; whatever the bytes are, nothing is raised."""
        if sender not in self._members:
            return []
        try:
            message = decode(payload)
        except WireError as error:
            self._counts["refused"] += 1
            return [Rejected(sender.hex(), str(error))]
        match message:
            case Ask(name):
                if not self._shelf.ask(sender, name, now_ns):
                    self._counts["unanswered"] += 1
                    return []
                return self._answer(now_ns)
            case Here(name, jpeg):
                return self._armed(self._fetching.on_here(sender, name, jpeg, now_ns), now_ns)
            case Lack(name):
                return self._armed(self._fetching.on_lack(sender, name, now_ns), now_ns)

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

    def _put(self, jpeg: bytes) -> list[SubEffect]:
        problem = problem_of(jpeg)
        if problem:
            raise StateError(f"the eye gave {problem}")
        name = name_of(jpeg)
        if self._shelf.get(name) is not None:
            return []
        gone = self._shelf.put(name, jpeg)
        return [Persist(JOURNAL + name, jpeg), *(Persist(JOURNAL + one, None) for one in gone)]

    def _fetch(self, name: bytes, now_ns: int) -> list[SubEffect]:
        if len(name) != NAME_BYTES:
            raise StateError(f"{name.hex()[:40]!r} is no picture's name: it has {2 * NAME_BYTES} hexadecimal digits")
        own = self._shelf.get(name)
        if own is not None:
            return [StateChanged(NAME, ThumbLearned(name, own))]
        return self._fetching.fetch(name, now_ns)

    def _answer(self, now_ns: int) -> list[SubEffect]:
        """Answer whose turn it is; what waits is looked at again soon."""
        effects: list[SubEffect] = []
        for asker, name, jpeg in self._shelf.answers(now_ns):
            self._counts["given" if jpeg else "lacked"] += 1
            message = Here(name, jpeg) if jpeg else Lack(name)
            effects.append(Send(asker, encode(message), bool(jpeg), Priority.BULK))
        if self._shelf.waits and not self._is_turning:
            self._is_turning = True
            effects.append(SetTimer(_TURN, now_ns + TURN_NS))
        return effects

    def _armed(self, effects: list[SubEffect], now_ns: int) -> list[SubEffect]:
        """These effects, and the timer of the next look at what waits."""
        due_ns = self._fetching.due_ns(now_ns)
        if due_ns is None or (self._step_ns is not None and self._step_ns <= due_ns):
            return effects
        self._step_ns = due_ns
        return [*effects, SetTimer(_STEP, due_ns)]

    def _keep_sweeping(self, now_ns: int) -> list[SubEffect]:
        if self._is_sweeping or not (len(self._shelf) or self._fetching.held or self._fetching.wanted):
            return []
        self._is_sweeping = True
        return [SetTimer(_SWEEP, now_ns + SWEEP_NS)]
