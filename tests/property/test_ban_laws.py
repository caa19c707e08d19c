"""Law: who gave bad chunks is asked for what nobody else shows, seldom; and it is what keeps a file from nobody.

The only holder of a file that was ill for a moment gives all of it soon after it has healed. One that gives nothing
good wins few chunks, whatever it shows. What somebody else shows is never asked of it.
"""

import random
from hashlib import sha256

from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.swarm_actions import Ask, SwarmAction
from swarmd_protocols.releases.swarming import BlobSwarm, SwarmingConfig

CHUNKS = 16
DATA = [bytes([index]) * 8 for index in range(CHUNKS)]
ALL = (1 << CHUNKS) - 1
S = 1_000_000_000
TICK_NS = S // 4
ILL, WELL = NodeId(b"i" * 16), NodeId(b"w" * 16)


class Receiver:
    """One that lacks the whole file, and neighbours that answer at once."""

    def __init__(self, seed: int) -> None:
        self.swarm = BlobSwarm(
            Blob(8 * CHUNKS, b"", 8, b""),
            tuple(sha256(one).digest() for one in DATA),
            0,
            random.Random(seed),
            SwarmingConfig(),
        )
        self.now_ns = S
        self.bad: list[int] = []
        """When bad chunks came, nanoseconds."""
        self.well_ns = 0
        """Before then the well one lets every question time out."""

    def run(self, until_ns: int, healed_ns: int, shown: dict[NodeId, int]) -> None:
        """Until then, or until it has the file; the ill one gives bad chunks before it has healed."""
        while self.now_ns < until_ns and not self.swarm.complete:
            for node, mask in shown.items():
                self._answer(self.swarm.on_tell(node, mask, self.now_ns), healed_ns)
            self._answer(self.swarm.on_tick(self.now_ns), healed_ns)
            self.now_ns += TICK_NS

    def _answer(self, actions: list[SwarmAction], healed_ns: int) -> None:
        while actions:
            action = actions.pop(0)
            if isinstance(action, Ask) and (action.to == ILL or self.now_ns >= self.well_ns):
                bad = action.to == ILL and self.now_ns < healed_ns
                if bad:
                    self.bad.append(self.now_ns)
                data = b"evil" if bad else DATA[action.index]
                actions += self.swarm.on_chunk(action.to, action.index, data, self.now_ns)[1]


@settings(derandomize=True, deadline=None, max_examples=30)
@given(ill_s=st.integers(1, 300), seed=st.integers(0, 1_000))
@example(ill_s=2, seed=0)
def test_the_only_holder_gives_the_file_once_it_has_healed(ill_s, seed):
    check_only_holder(ill_s, seed)


def check_only_holder(ill_s: int, seed: int) -> None:
    receiver = Receiver(seed)
    healed_ns = receiver.now_ns + ill_s * S
    receiver.run(healed_ns + max(11, 2 * ill_s) * S, healed_ns, {ILL: ALL})
    assert receiver.swarm.complete


@settings(derandomize=True, deadline=None, max_examples=10)
@given(shown=st.integers(1, ALL), seed=st.integers(0, 1_000))
@example(shown=ALL, seed=0)
def test_who_gives_nothing_good_wins_little(shown, seed):
    check_liar(shown, seed)


def check_liar(shown: int, seed: int) -> None:
    receiver = Receiver(seed)
    receiver.run(2_400 * S, 2**62, {ILL: shown})
    assert len([at_ns for at_ns in receiver.bad if at_ns < 600 * S]) <= 6
    assert len(receiver.bad) <= 9


@settings(derandomize=True, deadline=None, max_examples=30)
@given(alone=st.integers(0, ALL), seed=st.integers(0, 1_000))
@example(alone=1, seed=0)
@example(alone=0, seed=0)
def test_only_what_nobody_else_shows_is_asked_of_it(alone, seed):
    check_others(alone, seed)


def check_others(alone: int, seed: int) -> None:
    """The well one shows all but some, and is slow; the ill one gave one bad chunk and has healed since."""
    receiver = Receiver(seed)
    receiver.well_ns = 20 * S
    receiver.run(receiver.now_ns + TICK_NS, 2**62, {ILL: ALL})
    assert len(receiver.bad) == 1
    receiver.run(receiver.now_ns + 30 * S, 0, {WELL: ALL & ~alone, ILL: ALL})
    assert receiver.swarm.complete
    taken = receiver.swarm.accounts[ILL].received
    assert taken == 8 * alone.bit_count()
