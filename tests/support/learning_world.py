"""Members that learn and nothing else: real `Learning`s on a network that loses, doubles and reorders."""

import contextlib
import heapq
from collections.abc import Callable, Sequence
from random import Random

from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Alarm, Order, Persist, Rejected, SetTimer, StateChanged, TimerKey
from swarmd_protocols.errors import StateError
from swarmd_protocols.learning.form import Session, sign_delta
from swarmd_protocols.learning.learning import Learning, LearningConfig
from swarmd_protocols.learning.merging import Merger
from swarmd_protocols.learning.messages import Give, encode
from swarmd_protocols.learning.requests import HeadMerged, Learn, Train, Trained
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.subprotocol import Peer, Send, SubEffect
from swarmd_protocols.trust.identity import make_dev_identity, open_trust

S = 1_000_000_000
CRYPTO = ModelCrypto()
SECRET = b"a fleet for tests only"
DIM = 24
SESSION = Session(b"m" * 32, DIM, 4, 12)
CONFIG = LearningConfig(round_ns=10 * S, patience=3, settle_ns=3 * S, bytes_s=0)
Rows = Callable[[int], Sequence[float] | None]


class Member:
    """One node: its disk outlives its process."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.identity = make_dev_identity(SECRET, "test", f"n{index}", CRYPTO)
        self.id = self.identity.node
        self.signer = NodeSigner(CRYPTO, self.identity.seed)
        self.trust = open_trust(self.identity, {}, CRYPTO)
        self.disk: dict[bytes, bytes] = {}
        self.timers: dict[TimerKey, int] = {}
        self.heads: dict[int, HeadMerged] = {}
        """By round, the last that was told."""
        self.alarms: list[Alarm] = []
        self.rejected: list[str] = []
        self.trains: list[Train] = []
        self.sent: list[tuple[int, int]] = []
        """(when, bytes) of each payload."""
        self.is_up = True
        self.learning: Learning


class World:
    """See the module.

    Args:
        count: Members.
        seed: Of all draws.
        means: What a member's labels want the weights to be, by its index; None: it has none.
        loss: Share of payloads that are lost; as many come twice, and all take up to two seconds.
        config: Of all.
        session: Of all.
    """

    def __init__(
        self,
        count: int,
        seed: int = 1,
        means: Rows = lambda index: [0.25] * DIM,
        loss: float = 0.0,
        config: LearningConfig = CONFIG,
        session: Session = SESSION,
    ) -> None:
        self.rng = Random(seed)
        self.means, self.loss, self.config, self.session = means, loss, config, session
        self.now_ns = 100 * S
        self.merger = Merger(32)
        self.members = [Member(index) for index in range(count)]
        self.by_id = {one.id: one for one in self.members}
        self.on_way: list[tuple[int, int, int, int, bytes]] = []
        self._order = 0
        self.deaf: set[int] = set()
        """Members that hear nobody."""
        for one in self.members:
            for other in self.members:
                one.trust.admit_certificate(other.identity.certificate)
        for one in self.members:
            self.boot(one.index)

    def boot(self, index: int) -> None:
        one = self.members[index]
        one.timers, one.is_up = {}, True
        one.learning = Learning(one.id, one.signer, one.trust, self.config, Random(index), dict(one.disk), self.merger)
        self.perform(one, one.learning.start(self.now_ns))
        peers = [Peer(m.id, f"n{m.index}", m.identity.claims().public_key, True) for m in self.members if m is not one]
        self.perform(one, one.learning.on_peers(peers, self.now_ns))
        self.perform(one, one.learning.on_command(Learn(self.session), self.now_ns))

    def perform(self, one: Member, effects: Sequence[SubEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, payload):
                    one.sent.append((self.now_ns, len(payload)))
                    self.carry(one.index, self.by_id[to].index, payload)
                case SetTimer(key, at_ns):
                    one.timers[key] = at_ns
                case Persist(key, None):
                    one.disk.pop(key, None)
                case Persist(key, value):
                    assert value is not None
                    one.disk[key] = value
                case Alarm():
                    one.alarms.append(effect)
                case Rejected(_, reason):
                    one.rejected.append(reason)
                case StateChanged(_, detail):
                    assert isinstance(detail, HeadMerged)
                    one.heads[detail.round] = detail
                case Order(_, request):
                    assert isinstance(request, Train)
                    one.trains.append(request)
                    self.train(one, request)

    def train(self, one: Member, order: Train) -> None:
        """What labels want, less what is there: a training that has come to its end."""
        wanted = self.means(one.index)
        now = [unit / (1 << 24) for unit in order.moved]
        change = [0.0] * len(now) if wanted is None else [a - b for a, b in zip(wanted, now, strict=True)]
        answer = Trained(order.session.id, order.round, change, 0 if wanted is None else 10)
        with contextlib.suppress(StateError):  # A training that has failed says nothing.
            self.perform(one, one.learning.on_command(answer, self.now_ns))

    def carry(self, sender: int, to: int, payload: bytes) -> None:
        copies = 0 if self.rng.random() < self.loss else 2 if self.rng.random() < self.loss else 1
        for _ in range(copies):
            self._order += 1
            at_ns = self.now_ns + (round(self.rng.random() * 2 * S) if self.loss else 1_000_000)
            heapq.heappush(self.on_way, (at_ns, self._order, sender, to, payload))

    def give(self, sender: int, to: int, *raws: bytes) -> None:
        """Somebody hands deltas to somebody, now."""
        self.hand(sender, to, encode(Give(raws)))

    def hand(self, sender: int, to: int, payload: bytes) -> None:
        one = self.members[to]
        if to in self.deaf:
            return
        self.perform(one, one.learning.on_message(self.members[sender].id, payload, self.now_ns))

    def delta(self, author: int, number: int, entries: Sequence[tuple[int, int]], exponent: int = 15) -> bytes:
        one = self.members[author]
        return sign_delta(one.id, self.session.id, number, 9, exponent, entries, one.signer).raw

    def run(self, seconds: float) -> None:
        """Half a second at a time: what arrives, what is due; once a second two members probe each other."""
        end_ns = self.now_ns + round(seconds * S)
        while self.now_ns < end_ns:
            self.now_ns += S // 2
            while self.on_way and self.on_way[0][0] <= self.now_ns:
                _, _, sender, to, payload = heapq.heappop(self.on_way)
                if self.members[to].is_up:
                    self.hand(sender, to, payload)
            for one in [one for one in self.members if one.is_up]:
                for key in [key for key, at_ns in one.timers.items() if at_ns <= self.now_ns]:
                    del one.timers[key]
                    self.perform(one, one.learning.on_timer(key, self.now_ns))
                self.probe(one)

    def probe(self, one: Member) -> None:
        other = self.rng.choice([member for member in self.members if member is not one])
        if other.is_up and self.rng.random() < 0.5:
            effects = one.learning.on_summary(other.id, other.learning.summary(), self.now_ns)
            self.perform(one, effects)

    def end(self, but: Sequence[int] = ()) -> list[HeadMerged]:
        """Run to the end of the session; what it came to at each member."""
        rounds = self.session.rounds
        members = [one for one in self.members if one.index not in but]
        for _ in range(40):
            self.run(rounds * self.config.round_ns / S / 4)
            if all(rounds in one.heads for one in members):
                break
        self.run(6 * self.config.round_ns / S)
        return [one.heads[rounds] for one in members]


def moved(head: HeadMerged) -> list[float]:
    """By how much each weight is moved."""
    return [unit / (1 << 24) for unit in head.moved]
