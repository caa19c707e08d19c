"""One blob spreading through a swarm in chunks: who asks whom for what, and who gives what to whom. Free of I/O.

The rules, each bought with a measurement (docs/performance/releases.md):

- the hash of every chunk is known before the first is asked for, so a bad chunk blames exactly one peer, at once;
- **one request in flight for each peer**, a few in all; the rarest chunk first, ties by the injected generator;
- a seeder **super-seeds**: it shows each neighbour only a few chunks, each time the one that was shown least, so that
  different neighbours carry different chunks away; a chunk that nobody else shows for a while is offered again;
- an uploader has a small window of chunks on their way and waits for the receiver's `have` before the next, so bulk
  never builds a queue in front of probes and leases, and a slow receiver slows only itself;
- who gives a bad chunk is asked for a while only for what nobody else shows (`bans.py`), and goes on being given to;
  who lets requests time out is asked after all others;
- what was never asked for is dropped unread; lengths come from the signed manifest;
- while the blob is cast on a shared channel (`casting.py`), the caster shows nothing and receivers hold their requests.

A hostile neighbour costs little (`SwarmingConfig`): one chunk to it at a time, and the next only after the receipt or a
timeout; a bit that it has told and takes back is believed once in a while only.
"""

import random
from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.bans import Bans
from swarmd_protocols.releases.chunksets import Counts, pick
from swarmd_protocols.releases.neighbour import Account, Neighbour
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.swarm_actions import Ask, Blame, Give, Refuse, SwarmAction, Tell
from swarmd_protocols.releases.upload_budget import UploadBudget
from swarmd_protocols.releases.upload_window import UploadWindow


@dataclass(frozen=True, slots=True)
class SwarmingConfig:
    """Bounds and times of one blob's spreading."""

    neighbours: int = 16
    requests: int = 6
    """In flight in all; one for each peer. Late ones do not count …"""
    requests_max: int = 12
    """… up to so many."""
    upload_window: int = 3
    upload_window_max: int = 8
    """Chunks on their way that fill the uplink; and with late ones, which wait for their packets (`UploadWindow`)."""
    upload_bytes_s: int = 0
    """Bytes of chunks a second over any ten seconds, of all files (`UploadBudget`); 0: as fast as the links carry."""
    backoff_ns: int = 60_000_000
    """After a refusal, before that peer is asked again."""
    offers: int = 1
    """Chunks that a super-seeder shows a neighbour beyond those it has."""
    hedge_times: int = 6
    """The very last chunks, where they take so many times the usual, are asked of one more peer; of fifty chunks at
    most one (and one of fewer), so that duplicates stay below 2 % whatever the network is like."""
    ask_repeat_ns: int = 250_000_000
    """A request without an answer is said again after so long, in case it was lost; then after twice as long …"""
    request_timeout_ns: int = 4_000_000_000
    upload_timeout_ns: int = 1_500_000_000
    reoffer_ns: int = 500_000_000
    seed_patience_ns: int = 5_000_000_000
    """A super-seeder shows all it has once nobody has come by a chunk for ten offers: two takers that give theirs to
    nobody would keep it from all others."""
    repeat_ns: int = 250_000_000
    """What was told is told again after so long, in case it was lost; then after twice as long, and so on …"""
    repeat_max_ns: int = 60_000_000_000
    """… up to this, until something is new."""
    reorder_ns: int = 200_000_000
    """A datagram may be overtaken by others for so long: a tenth of a second on a bad radio, and as much again."""
    ban_ns: int = 600_000_000_000
    retry_ns: int = 10_000_000_000
    """Before who gave a bad chunk is asked for one that nobody else shows (`Bans`)."""
    reset_every_ns: int = 10_000_000_000
    """A neighbour that shows fewer chunks than before has lost some, once in so long; more often it is not believed."""


@dataclass(slots=True)
class BlobSwarm:
    """One blob at one node, whether it has all of it, some, or nothing yet."""

    blob: Blob
    hashes: tuple[bytes, ...]
    """SHA-256 of every chunk, from the verified chunk list."""
    have: int
    rng: random.Random
    config: SwarmingConfig = SwarmingConfig()
    super_seed: bool = False
    budget: UploadBudget = field(default_factory=lambda: UploadBudget(0))
    silent: bool = False
    """Shows nothing: its chunks are being cast."""
    hold_until_ns: int = 0
    """Asks for nothing before then: its chunks are being cast."""
    accounts: dict[NodeId, Account] = field(default_factory=dict)
    banned: Bans = field(init=False)
    """Who gave a bad chunk: not counted among the holders.

    It is given what it lacks as anybody is: a device whose memory flips bits is not to stay with an old model.
    """
    is_paused: bool = False
    """Asks for nothing: the disk has to catch up, or nobody here wants the file any more."""
    useless: int = 0
    """Messages that brought nothing and asked for nothing that was offered."""
    _near: dict[NodeId, Neighbour] = field(default_factory=dict)
    _copies: Counts = field(init=False)
    """How many neighbours show each chunk."""
    _pending: int = 0
    _sending: dict[tuple[NodeId, int], int] = field(default_factory=dict)
    _window: UploadWindow = field(init=False)
    _hedged: int = 0
    _asking: UploadWindow = field(init=False)
    """Requests in flight."""
    _offered: Counts = field(init=False)
    _offered_at: deque[tuple[int, int]] = field(default_factory=deque)
    _fresh: int = 0
    """(when, chunk) of the offers that are not yet old enough to be made again, and their mask."""
    _reset_ns: dict[NodeId, int] = field(default_factory=dict)
    _grown_ns: int = 0
    """When a neighbour last showed a chunk that it had not shown before; 0: never."""

    def __post_init__(self) -> None:
        self._window = UploadWindow(self.config.upload_window, self.config.upload_window_max)
        self._asking = UploadWindow(self.config.requests, self.config.requests_max)
        self.banned = Bans(self.config.ban_ns, self.config.retry_ns)
        count = len(self.hashes)
        assert count == self.blob.chunk_count
        self._copies, self._offered = Counts(count), Counts(count)

    @property
    def everything(self) -> int:
        """The mask of all chunks."""
        return (1 << len(self.hashes)) - 1

    @property
    def complete(self) -> bool:
        """Nothing is missing."""
        return self.have == self.everything

    @property
    def is_serving(self) -> bool:
        """Whether some neighbour still lacks chunks that we have."""
        return any(self.have & ~one.has for one in self._near.values())

    @property
    def neighbours(self) -> list[NodeId]:
        """With whom chunks are exchanged."""
        return list(self._near)

    def on_neighbour(self, node: NodeId, now_ns: int) -> list[SwarmAction]:
        """A peer wants to exchange chunks of this blob (or we do with it)."""
        if node in self._near:
            return []
        if len(self._near) >= 2 * self.config.neighbours:
            return []
        self._near[node] = Neighbour(heard_ns=now_ns)
        return self._show(node, now_ns, greet=True)

    def on_lost(self, node: NodeId, now_ns: int) -> list[SwarmAction]:
        """A peer has gone; what was asked of it is asked elsewhere."""
        neighbour = self._near.pop(node, None)
        if neighbour is None:
            return []
        if node not in self.banned:
            self._copies.take(neighbour.has)
        if neighbour.asked is not None:
            self._pending &= ~(1 << neighbour.asked)
        for key in [key for key in self._sending if key[0] == node]:
            del self._sending[key]
        return [*self._want(now_ns), *self._pump(now_ns)]

    def on_tell(self, node: NodeId, mask: int, now_ns: int) -> list[SwarmAction]:
        """A peer says what it shows us; less than before only when it has lost some, and then it is a new peer."""
        actions: list[SwarmAction] = []
        known = self._near.get(node)
        if known is not None and known.has & ~mask:
            if not self._may_reset(node, known, now_ns):
                self.useless += 1
                return actions
            actions += self.on_lost(node, now_ns)
        elif known is not None:
            known.shrank_ns = 0
        if node not in self._near:
            actions += self.on_neighbour(node, now_ns)
        neighbour = self._near.get(node)
        if neighbour is None:
            self.useless += 1
            return actions
        neighbour.heard_ns = now_ns
        if known is neighbour and not known.has_spoken and known.shown:
            actions.append(Tell(node, known.shown))
        neighbour.has_spoken = True
        new = mask & self.everything & ~neighbour.has
        self.useless += known is not None and not new
        if node not in self.banned:
            self._copies.add(new)
        for receiver, index in [key for key in self._sending if key[0] == node and new >> key[1] & 1]:
            since_ns = self._sending.pop((receiver, index))
            self._account(node).sent += self.blob.chunk_size(index)
            self._window.on_receipt(now_ns - since_ns)
        neighbour.has |= new
        if new:
            neighbour.repeat_ns = 0
            self._grown_ns = now_ns
        if self.complete and neighbour.has == self.everything and neighbour.shown != self.everything:
            # It lacks nothing and may not know that we do not either: tell it, so that both fall silent.
            neighbour.shown = self.everything
            actions.append(Tell(node, self.everything))
        elif new and self.super_seed:
            actions += self._show(node, now_ns)
        return [*actions, *self._want(now_ns), *self._pump(now_ns)]

    def _may_reset(self, node: NodeId, neighbour: Neighbour, now_ns: int) -> bool:
        """Whether a neighbour is believed that it has lost chunks: once in a while, and only if it says so twice.

        A single such word may be an older one that a newer one has overtaken.
        """
        every_ns = self.config.reset_every_ns
        neighbour.shrank_ns = neighbour.shrank_ns or now_ns
        if now_ns - neighbour.shrank_ns < self.config.reorder_ns:
            return False
        if now_ns - self._reset_ns.get(node, -every_ns) < every_ns:
            return False
        if len(self._reset_ns) >= 4 * self.config.neighbours:
            self._reset_ns.pop(next(iter(self._reset_ns)))
        self._reset_ns[node] = now_ns
        return True

    def on_ask(self, node: NodeId, index: int, now_ns: int) -> list[SwarmAction]:
        """A peer asks for a chunk; only for what it was shown, one at a time."""
        neighbour = self._near.get(node)
        if neighbour is None or not 0 <= index < len(self.hashes) or not neighbour.shown >> index & 1:
            self.useless += 1
            return []
        is_given = neighbour.gave == index and now_ns - neighbour.gave_ns < self.config.request_timeout_ns
        if is_given or neighbour.has >> index & 1:
            self.useless += 1  # Said again, and on its way or there already.
            return []
        if neighbour.wants == index and self._waits(neighbour, now_ns):
            return []
        self.useless += neighbour.wants is not None
        waiting = sum(self._waits(one, now_ns) for one in self._near.values())
        # Who waits for the budget is not refused: it would ask again a moment later, and get nothing sooner.
        is_spent = self.budget.is_spent(self.blob.chunk_size(index), now_ns)
        if not is_spent and waiting >= self._window.room(self._sending.values(), now_ns):
            return [Refuse(node, index)]
        neighbour.wants, neighbour.wants_ns = index, now_ns
        return self._pump(now_ns)

    def _waits(self, neighbour: Neighbour, now_ns: int) -> bool:
        """Whether what it asked for is still awaited there: later it would come unasked."""
        return neighbour.wants is not None and now_ns - neighbour.wants_ns < self.config.request_timeout_ns * 7 // 8

    def on_refuse(self, node: NodeId, index: int, now_ns: int) -> list[SwarmAction]:
        """A peer is busy; the chunk is asked elsewhere, and the peer again a little later."""
        neighbour = self._near.get(node)
        if neighbour is None or neighbour.asked != index:
            return []
        neighbour.asked, neighbour.not_before_ns = None, now_ns + self.config.backoff_ns
        self._pending &= ~(1 << index)
        return self._want(now_ns)

    def next_due_ns(self, now_ns: int) -> int | None:
        """When a refused peer may be asked again, if that is all that holds us up."""
        if self.complete or self.is_paused:
            return None
        if self.hold_until_ns > now_ns:
            return self.hold_until_ns
        later = [one.not_before_ns for one in self._near.values() if one.not_before_ns > now_ns and one.asked is None]
        return min(later, default=None)

    def on_due(self, now_ns: int) -> list[SwarmAction]:
        """The back-off of some peer is over."""
        return self._want(now_ns)

    def on_chunk(self, node: NodeId, index: int, data: bytes, now_ns: int) -> tuple[bool, list[SwarmAction]]:
        """Bytes that say they are a chunk.

        Returns:
            Whether they are a new, good chunk (then `have` includes it and the caller stores it), and what to do.
        """
        neighbour = self._near.get(node)
        account = self._account(node)
        if neighbour is None or neighbour.asked != index:
            account.wasted += len(data)
            self.useless += 1
            return False, []
        self._asking.on_receipt(now_ns - neighbour.asked_ns)
        neighbour.asked, neighbour.silences, neighbour.heard_ns = None, 0, now_ns
        self._pending &= ~(1 << index)
        if not self._is_chunk(index, data):
            account.wasted += len(data)
            self._ban(node, now_ns)
            return False, [Blame(node, f"chunk {index} does not hash to the list"), *self._want(now_ns)]
        if self.have >> index & 1:
            account.wasted += len(data)
            return False, self._want(now_ns)
        account.received += len(data)
        self.banned.gave(node, now_ns)
        return True, [*self._took(index, node), *self._want(now_ns)]

    def _ban(self, node: NodeId, now_ns: int) -> None:
        """Count nothing that a peer shows, for a while."""
        if node not in self.banned:
            self._copies.take(self._near[node].has)
        self.banned.add(node, now_ns)

    def _forgive(self, now_ns: int) -> None:
        """Whose time is over is asked as others are."""
        for node in self.banned.over(now_ns) & self._near.keys():
            self._copies.add(self._near[node].has)

    def on_cast_chunk(self, index: int, data: bytes) -> tuple[bool, list[SwarmAction]]:
        """Pieces of a cast have made up a chunk.

        Returns:
            Whether it is good, and new (then `have` includes it and the caller stores it); and what to do.
        """
        if self.have >> index & 1 or not self._is_chunk(index, data):
            return False, []
        return True, self._took(index, None)

    def speak(self, now_ns: int) -> list[SwarmAction]:
        """The cast is over: show everything from here on."""
        self.silent = False
        return [action for node in list(self._near) for action in self._show(node, now_ns, greet=True)]

    def _is_chunk(self, index: int, data: bytes) -> bool:
        return len(data) == self.blob.chunk_size(index) and sha256(data).digest() == self.hashes[index]

    def _took(self, index: int, giver: NodeId | None) -> list[SwarmAction]:
        """A chunk is new here: tell those that may lack it, and whoever waits for the receipt."""
        self.have |= 1 << index
        actions: list[SwarmAction] = []
        for peer, other in self._near.items():
            if not self.complete or other.has != self.everything or peer == giver:
                other.shown |= self.have
                other.repeat_ns = 0
                actions.append(Tell(peer, self.have))
        return actions

    def on_tick(self, now_ns: int) -> list[SwarmAction]:
        """Give up on what takes too long, say again what may have been lost; every few hundred milliseconds."""
        actions: list[SwarmAction] = []
        self._forgive(now_ns)
        for node, neighbour in self._near.items():
            if neighbour.asked is not None and now_ns - neighbour.asked_ns > self.config.request_timeout_ns:
                self._pending &= ~(1 << neighbour.asked)
                neighbour.asked = None
                neighbour.silences += 1
            if neighbour.asked is not None and now_ns - neighbour.asked_ns >= neighbour.ask_again_ns:
                neighbour.ask_again_ns *= 2
                actions.append(Ask(node, neighbour.asked))
            if (neighbour.has != self.everything or not self.complete) and self._may_repeat(neighbour, now_ns):
                actions.append(Tell(node, neighbour.shown))
        for key, since_ns in list(self._sending.items()):
            if now_ns - since_ns > self.config.upload_timeout_ns:
                del self._sending[key]
        if self.super_seed:
            if self._grown_ns and now_ns - self._grown_ns > self.config.seed_patience_ns:
                self.super_seed = all(neighbour.has == self.everything for neighbour in self._near.values())
            for node in self._near:
                actions += self._show(node, now_ns)
        return [*actions, *self._want(now_ns), *self._pump(now_ns)]

    def _may_repeat(self, neighbour: Neighbour, now_ns: int) -> bool:
        config = self.config
        if not neighbour.repeat_ns:
            neighbour.repeat_ns, neighbour.repeat_at_ns = config.repeat_ns, now_ns + config.repeat_ns
        if now_ns < neighbour.repeat_at_ns:
            return False
        neighbour.repeat_ns = min(2 * neighbour.repeat_ns, config.repeat_max_ns)
        neighbour.repeat_at_ns = now_ns + neighbour.repeat_ns
        return True

    def _account(self, node: NodeId) -> Account:
        return self.accounts.setdefault(node, Account())

    # --- Asking ---------------------------------------------------------------------------------------------------

    def _want(self, now_ns: int) -> list[SwarmAction]:
        """Ask idle neighbours for the rarest chunks they show."""
        actions: list[SwarmAction] = []
        if self.complete or self.is_paused or now_ns < self.hold_until_ns:
            return actions
        idle = {
            node: one.has if node not in self.banned else one.has & self._copies.under(1)
            for node, one in self._near.items()
            if one.asked is None
            and one.not_before_ns <= now_ns
            and (node not in self.banned or self.banned.is_due(node, now_ns))
        }
        free = self._asking.room((one.asked_ns for one in self._near.values() if one.asked is not None), now_ns)
        while free > 0:
            need = self.everything & ~self.have & ~self._pending
            shown = 0
            for has in idle.values():
                shown |= has
            candidates = shown & need
            if not need:
                late = self._late(shown, now_ns)[:1]
                candidates = 1 << late[0] if late else 0
                self._hedged += len(late)
            if not candidates:
                break
            index = pick(self._copies.least(candidates), self.rng)
            holders = [node for node, has in idle.items() if has >> index & 1]
            fewest = min(self._near[node].silences for node in holders)
            node = self.rng.choice([node for node in holders if self._near[node].silences == fewest])
            neighbour = self._near[node]
            neighbour.asked, neighbour.asked_ns, neighbour.ask_again_ns = index, now_ns, self.config.ask_repeat_ns
            self._pending |= 1 << index
            del idle[node]
            if node in self.banned:
                self.banned.asked(node, now_ns)
            free -= 1
            actions.append(Ask(node, index))
        return actions

    def _late(self, shown: int, now_ns: int) -> list[int]:
        """Towards the end: what was asked of a single peer, takes far longer than usual, and is shown by an idle one.

        A connection that loses packets backs off for seconds; the last chunk of a file is not to wait for it.
        """
        patience_ns = self.config.hedge_times * self._asking.usual_ns
        left = max(1, len(self.hashes) // 50) - self._hedged
        if not patience_ns or (self.everything & ~self.have).bit_count() > left:
            return []  # Too few to ask for all of them again: the file would wait for the others.
        asked = [one.asked for one in self._near.values() if one.asked is not None]
        return [
            one.asked
            for one in self._near.values()
            if one.asked is not None
            and now_ns - one.asked_ns > patience_ns
            and asked.count(one.asked) == 1
            and (shown & ~self.have) >> one.asked & 1
        ]

    # --- Giving ---------------------------------------------------------------------------------------------------

    def _pump(self, now_ns: int) -> list[SwarmAction]:
        """Send what was asked for, as far as the window allows; a super-seeder sends what it has sent least first."""
        actions: list[SwarmAction] = []
        while self._window.room(self._sending.values(), now_ns) > 0:
            waiting = [
                (one.wants, node)
                for node, one in self._near.items()
                if one.wants is not None and self._waits(one, now_ns) and not self._is_on_its_way(node)
            ]
            if not waiting:
                break
            index, node = min(waiting, key=lambda item: self._copies.of(item[0])) if self.super_seed else waiting[0]
            if not self.budget.take(self.blob.chunk_size(index), now_ns, self.blob.sha256):
                break
            neighbour = self._near.pop(node)
            neighbour.wants, neighbour.gave, neighbour.gave_ns = None, index, now_ns
            self._near[node] = neighbour  # To the end: the next in turn goes first.
            self._sending[node, index] = now_ns
            actions.append(Give(node, index))
        return actions

    def _is_on_its_way(self, node: NodeId) -> bool:
        """Whether a chunk was sent to a neighbour that has neither been receipted nor timed out."""
        return any(receiver == node for receiver, _ in self._sending)

    def _show(self, node: NodeId, now_ns: int, greet: bool = False) -> list[SwarmAction]:
        """Tell a neighbour what it may ask for: all we have, or, super-seeding, the next few of its own."""
        neighbour = self._near[node]
        if self.silent:
            return [Tell(node, 0)] if greet else []
        if not self.super_seed:
            neighbour.shown = self.have
            return [Tell(node, self.have)]
        before = neighbour.shown
        while (neighbour.shown & ~neighbour.has).bit_count() < self.config.offers:
            index = self._next_offer(neighbour, now_ns)
            if index is None:
                break
            neighbour.shown |= 1 << index
            neighbour.repeat_ns = 0
            self._offered.add(1 << index)
            self._offered_at.append((now_ns, index))
            self._fresh |= 1 << index
        return [Tell(node, neighbour.shown)] if neighbour.shown != before or greet else []

    def _next_offer(self, neighbour: Neighbour, now_ns: int) -> int | None:
        """The chunk offered least; a second time only when nobody but its first taker shows it after a while."""
        while self._offered_at and self._offered_at[0][0] <= now_ns - self.config.reoffer_ns:
            self._fresh &= ~(1 << self._offered_at.popleft()[1])
        choices = self.everything & ~neighbour.shown & ~neighbour.has
        if not choices:
            return None
        if not choices & self._offered.under(1):
            choices &= ~self._fresh & self._copies.under(2)
            if not choices:
                return None
        return pick(self._offered.least(choices), self.rng)


def shows_more(swarm: BlobSwarm) -> bool:
    """Whether some neighbour shows a chunk that is not here."""
    return any(one.has & ~swarm.have for one in swarm._near.values())
