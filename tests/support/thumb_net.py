"""A few `Thumbs` and what carries their words: a shelf of sightings that the test writes, links that the test cuts."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from swarmd_protocols.effects import Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.ids import NodeId
from swarmd_protocols.subprotocol import Peer, Send, SubEffect
from swarmd_protocols.thumbs import messages
from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.requests import Fetch, Shelve, ThumbLearned
from swarmd_protocols.thumbs.thumbs import Thumbs, ThumbsConfig

S = 1_000_000_000


def id_of(index: int) -> NodeId:
    return NodeId(bytes([index + 1]) * 16)


@dataclass
class Device:
    """One node: its disk outlives its process."""

    index: int
    thumbs: Thumbs
    disk: dict[bytes, bytes] = field(default_factory=dict)
    timers: dict[TimerKey, int] = field(default_factory=dict)
    shown: list[ThumbLearned] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    names: set[bytes] = field(default_factory=set)
    """Of pictures that its sightings bear."""


class ThumbNet:
    """Devices that know each other's sightings at once; words take a millisecond."""

    def __init__(self, count: int, config: ThumbsConfig | None = None) -> None:
        self.now_ns = S
        self.config = config or ThumbsConfig()
        self.members = set(range(count))
        self.far: set[int] = set()
        self.silent: set[int] = set()
        """Who answers nothing."""
        self.on_way: deque[tuple[int, int, bytes]] = deque()
        self.sent: Counter[str] = Counter()
        self.sent_bytes = 0
        self.twist: Callable[[int, bytes], bytes] = lambda _sender, payload: payload
        """What a sender makes of its words."""
        self.devices = [Device(index, self._thumbs(index, {})) for index in range(count)]
        self.meet()

    def _thumbs(self, index: int, disk: dict[bytes, bytes]) -> Thumbs:
        return Thumbs(id_of(index), self.config, dict(disk), lambda: self.devices[index].names, self.authors_of)

    def authors_of(self, name: bytes) -> list[NodeId]:
        return [id_of(one.index) for one in self.devices if name in one.names]

    def meet(self) -> None:
        """Everybody hears who the members are."""
        for one in self.devices:
            peers = [
                Peer(id_of(i), f"n{i}", bytes(32), True, far=i in self.far)
                for i in sorted(self.members)
                if i != one.index
            ]
            self.perform(one, one.thumbs.on_peers(peers, self.now_ns))

    def reboot(self, index: int) -> None:
        one = self.devices[index]
        one.thumbs, one.timers = self._thumbs(index, one.disk), {}
        self.perform(one, one.thumbs.start(self.now_ns))
        self.meet()

    def see(self, index: int, jpeg: bytes) -> bytes:
        """A device sees something and says so with its picture; returns the name."""
        one, name = self.devices[index], name_of(jpeg)
        one.names.add(name)
        self.perform(one, one.thumbs.on_command(Shelve(jpeg), self.now_ns))
        return name

    def look(self, index: int, name: bytes) -> None:
        """Somebody at a device wants to see a picture; raises `StateError` as the protocol does."""
        one = self.devices[index]
        self.perform(one, one.thumbs.on_command(Fetch(name), self.now_ns))

    def perform(self, one: Device, effects: list[SubEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, payload):
                    self.sent[type(messages.decode(payload)).__name__] += 1
                    self.sent_bytes += len(payload)
                    self.on_way.append((one.index, to[0] - 1, self.twist(one.index, payload)))
                case SetTimer(key, due_ns):
                    one.timers[key] = due_ns
                case Persist(key, None):
                    one.disk.pop(key, None)
                case Persist(key, record):
                    assert record is not None
                    one.disk[key] = record
                case StateChanged(detail=ThumbLearned() as learned):
                    one.shown.append(learned)
                case Rejected(_, reason):
                    one.rejected.append(reason)

    def deliver(self, sender: int, to: int, payload: bytes) -> None:
        one = self.devices[to]
        self.perform(one, one.thumbs.on_message(id_of(sender), payload, self.now_ns))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until_ns = self.now_ns + round(seconds * S)
        while True:
            while self.on_way:
                sender, to, payload = self.on_way.popleft()
                self.now_ns += S // 1000
                if sender not in self.silent and to not in self.far:
                    self.deliver(sender, to, payload)
            due = [(at, one.index, key) for one in self.devices for key, at in one.timers.items() if at <= until_ns]
            if not due:
                break
            at, index, key = min(due, key=lambda item: item[:2])
            self.now_ns = max(self.now_ns, at)
            del self.devices[index].timers[key]
            self.perform(self.devices[index], self.devices[index].thumbs.on_timer(key, self.now_ns))
        self.now_ns = max(self.now_ns, until_ns)
