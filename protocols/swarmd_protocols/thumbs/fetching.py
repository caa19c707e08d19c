"""Pictures of others: asked for once, of who says to have them, when somebody looks.

Rules this file keeps:

- Nothing is fetched that nobody wants to see, and nothing that no sighting held here names.
- What is wanted by several at once, or is held, is asked for once. A failure is remembered for a while.
- Only authors of sightings that name a picture are asked, one after the other; what somebody else sends is not taken.
- An author is asked as often as it answers (`shelf.py`), two pictures at a time; the rest waits its turn.
- What is held is bounded, and of each author: nobody's pictures push those of all others out. Of what waits, the last
  of whom most is wanted of makes room for another's.
- A picture goes when no sighting names it any more.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swarmd_protocols.channel.bucket import TokenBucket
from swarmd_protocols.effects import Rejected, StateChanged
from swarmd_protocols.errors import StateError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Priority, Send, SubEffect
from swarmd_protocols.thumbs.messages import Ask, encode
from swarmd_protocols.thumbs.requests import ThumbLearned
from swarmd_protocols.thumbs.shelf import ASKED_AT_ONCE, ASKED_PER_S

NAME = "thumbs"
WANTED_MAX = 256
"""Pictures that may be on their way: two screens of findings, and a report of a few hundred asks again."""
AT_A_TIME = 2
"""Asked of one author before it has answered: the second is on its way while the first is read."""
ANSWER_NS = 3_000_000_000
"""An author that has not answered in this time, nanoseconds, is asked again: 6 KiB at 100 kbit/s take half a second."""
TRIES = 2
"""So often is each author asked."""
FAILED_NS = 15_000_000_000
"""What could not be had is not asked for again before, nanoseconds."""
FAILED_MAX = 1_024
"""Failures that are remembered."""
TURN_NS = 250_000_000
"""Until the next look at what waits, nanoseconds: a picture every so often is what an author gives."""


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Bounds of what is held of others."""

    count_max: int = 1_024
    """Pictures: those of a report with all its findings."""
    bytes_max: int = 4 << 20
    """Of all together."""
    author_max: int = 256
    """Pictures of one author."""


@dataclass(slots=True)
class _Wanted:
    """One picture that somebody waits for."""

    authors: list[NodeId]
    """Who may still be asked; the first is the one that is."""
    tries: int = 0
    asked_ns: int | None = None
    """When the first of `authors` was asked; None: it waits for its turn."""


@dataclass(slots=True)
class _Held:
    """Pictures by name, with who they came from."""

    pictures: dict[bytes, tuple[NodeId, bytes]] = field(default_factory=dict)
    counts: Counter[NodeId] = field(default_factory=Counter)
    size_bytes: int = 0

    def put(self, name: bytes, author: NodeId, jpeg: bytes) -> None:
        self.pictures[name] = (author, jpeg)
        self.counts[author] += 1
        self.size_bytes += len(jpeg)

    def drop(self, name: bytes) -> None:
        author, jpeg = self.pictures.pop(name)
        self.counts[author] -= 1
        if not self.counts[author]:
            del self.counts[author]
        self.size_bytes -= len(jpeg)

    def oldest_of(self, author: NodeId) -> bytes:
        return next(name for name, (by, _) in self.pictures.items() if by == author)


class Fetching:
    """See the module.

    Args:
        node: This node.
        config: Bounds.
        authors_of: Nodes a sighting of which names this picture, as far as they are known here.
    """

    def __init__(self, node: NodeId, config: FetchConfig, authors_of: Callable[[bytes], Sequence[NodeId]]) -> None:
        self._node = node
        self._config = config
        self._authors_of = authors_of
        self._near: frozenset[NodeId] = frozenset()
        self._wanted: dict[bytes, _Wanted] = {}
        self._held = _Held()
        self._failed: dict[bytes, tuple[int, str]] = {}
        """Name to when it may be asked for again, and why it could not be had."""
        self._paces: dict[NodeId, TokenBucket] = {}
        self.counts: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """How many pictures of others there are."""
        return len(self._held.pictures)

    @property
    def wanted(self) -> int:
        """How many are on their way."""
        return len(self._wanted)

    @property
    def size_bytes(self) -> int:
        """Of all pictures of others together."""
        return self._held.size_bytes

    def due_ns(self, now_ns: int) -> int | None:
        """When `step` is to be called again; None: not before something happens."""
        if not self._wanted:
            return None
        asked = [want.asked_ns + ANSWER_NS for want in self._wanted.values() if want.asked_ns is not None]
        is_waiting = len(asked) < len(self._wanted)
        return min([*asked, now_ns + TURN_NS] if is_waiting else asked)

    def fetch(self, name: bytes, now_ns: int) -> list[SubEffect]:
        """Somebody wants to see a picture.

        Raises:
            StateError: No sighting names it, or too many are on their way.
        """
        authors = [author for author in self._authors_of(name) if author != self._node]
        if not authors:
            raise StateError(f"no sighting that is known here has the picture {name.hex()}")
        if name in self._held.pictures:
            return [_learned(name, self._held.pictures[name][1])]
        until_ns, problem = self._failed.get(name, (now_ns, ""))
        if until_ns > now_ns:
            return [_learned(name, b"", problem)]
        if name in self._wanted:
            return []
        effects = self._make_room(authors[0], now_ns)
        if len(self._wanted) >= WANTED_MAX:
            raise StateError(f"{WANTED_MAX} pictures are on their way, as many as can be; ask again")
        self._wanted[name] = _Wanted(authors)
        return effects + self.step(now_ns)

    def _make_room(self, author: NodeId, now_ns: int) -> list[SubEffect]:
        """Where too many are on their way, give up one of whom twice as many are wanted of as of this author."""
        if len(self._wanted) < WANTED_MAX:
            return []
        counts = Counter(want.authors[0] for want in self._wanted.values())
        most = max(sorted(counts), key=counts.__getitem__)
        if counts[most] <= 2 * counts[author] + 1:
            return []
        last = next(name for name in reversed(self._wanted) if self._wanted[name].authors[0] == most)
        return self._give_up(last, "too many of the same author's are on their way; ask again", now_ns)

    def know_near(self, near: frozenset[NodeId], now_ns: int) -> list[SubEffect]:
        """Who can be asked."""
        self._near = near
        self._paces = {node: pace for node, pace in self._paces.items() if node in near}
        return self.step(now_ns) if self._wanted else []

    def step(self, now_ns: int) -> list[SubEffect]:
        """Ask for what waits, as far as it is its turn; give up what nobody answers."""
        effects: list[SubEffect] = []
        out = Counter(want.authors[0] for want in self._wanted.values() if want.asked_ns is not None)
        for name, want in list(self._wanted.items()):
            if want.asked_ns is not None:
                if want.authors[0] in self._near and now_ns - want.asked_ns < ANSWER_NS:
                    continue
                out[want.authors[0]] -= 1
                want.asked_ns = None
                if want.tries >= TRIES:
                    self._next_author(want)
            while want.authors and want.authors[0] not in self._near:
                self._next_author(want)
            if not want.authors:
                effects += self._give_up(name, "who made it does not answer, or cannot be reached", now_ns)
            elif out[want.authors[0]] < AT_A_TIME and self._pace(want.authors[0]).take(now_ns):
                out[want.authors[0]] += 1
                want.asked_ns, want.tries = now_ns, want.tries + 1
                self.counts["asked"] += 1
                effects.append(Send(want.authors[0], encode(Ask(name)), False, Priority.BULK))
        return effects

    def on_here(self, sender: NodeId, name: bytes, jpeg: bytes, now_ns: int) -> list[SubEffect]:
        """A picture came; its name and form were checked."""
        want = self._wanted.get(name)
        if want is None or want.asked_ns is None or want.authors[0] != sender:
            self.counts["unasked"] += 1
            return [Rejected(sender.hex(), "a picture that it was not asked for")]
        del self._wanted[name]
        self.counts["fetched"] += 1
        self._keep(name, sender, jpeg)
        return [_learned(name, jpeg), *self.step(now_ns)]

    def on_lack(self, sender: NodeId, name: bytes, now_ns: int) -> list[SubEffect]:
        """Who was asked has no such picture."""
        want = self._wanted.get(name)
        if want is None or want.asked_ns is None or want.authors[0] != sender:
            return []
        self._next_author(want)
        if want.authors:
            return self.step(now_ns)
        return [*self._give_up(name, "who made it no longer has it", now_ns), *self.step(now_ns)]

    def sweep(self) -> None:
        """Let go of what no sighting names any more."""
        for name in [name for name in self._held.pictures if not self._authors_of(name)]:
            self._held.drop(name)

    def _keep(self, name: bytes, author: NodeId, jpeg: bytes) -> None:
        held, config = self._held, self._config
        held.put(name, author, jpeg)
        if held.counts[author] > config.author_max:
            held.drop(held.oldest_of(author))
        while len(held.pictures) > config.count_max or held.size_bytes > config.bytes_max:
            held.drop(held.oldest_of(max(sorted(held.counts), key=held.counts.__getitem__)))

    def _pace(self, author: NodeId) -> TokenBucket:
        return self._paces.setdefault(author, TokenBucket(ASKED_PER_S, ASKED_AT_ONCE))

    def _give_up(self, name: bytes, problem: str, now_ns: int) -> list[SubEffect]:
        self._wanted.pop(name, None)
        self.counts["failed"] += 1
        self._failed.pop(name, None)
        self._failed[name] = (now_ns + FAILED_NS, problem)
        if len(self._failed) > FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        return [_learned(name, b"", problem)]

    @staticmethod
    def _next_author(want: _Wanted) -> None:
        del want.authors[0]
        want.tries, want.asked_ns = 0, None


def _learned(name: bytes, jpeg: bytes, problem: str = "") -> SubEffect:
    return StateChanged(NAME, ThumbLearned(name, jpeg, problem))
