"""Law: what one author makes the relays send is bounded, and what honest members say still comes through at once.

The author holds a genuine key, so all that it says is signed; how much it says is drawn.
"""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.effects import Alarm, SendDatagram, SendStream, SetMeta, UserEvent
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.messages import Ping
from swarmd_protocols.swim.relays import Relays
from tests.support.swim_net import MS, SECRET, Host, Net, S
from tests.support.swim_thief import Thief
from tests.support.tiers import few_fast

COUNT = 8
FLOODER = COUNT - 1
STORM_S = 20
SETTLED_S = 10
BUDGET_BYTES_S = SwimConfig().budget_bytes_s
BURST_BYTES = SwimConfig().meta_bytes_max


class Counted(Net):
    """Counts what nodes send over the reliable path too."""

    sent: list[int]

    def perform(self, host: Host, effects: list) -> None:
        if not hasattr(self, "sent"):
            self.sent = [0] * 64
        for effect in effects:
            if isinstance(effect, SendDatagram | SendStream):
                self.sent[host.index] += len(effect.data) + 42
        super().perform(host, effects)


def swarm(seed: int, loss: float = 0.0) -> Counted:
    net = Counted(COUNT, seed, loss=loss)
    assert net.run_until(net.formed, 15) is not None
    net.run(3)
    return net


def storm(net: Net, kind: str, per_s: int, size: int, seconds: float) -> None:
    """The last member says so much to all, and goes on."""
    rng = Random(per_s * 65_537 + size)
    for number in range(int(per_s * seconds)):
        request = (
            UserEvent(f"storm{number}", rng.randbytes(size))
            if kind == "events"
            else SetMeta(f"k{rng.randrange(64)}", rng.randbytes(size))
        )
        net.at(net.now + number * S // per_s, lambda request=request: net.feed(FLOODER, request))


def honest_bytes_s(net: Counted, seconds: float) -> float:
    before = sum(net.sent[:FLOODER])
    net.run(seconds)
    return (sum(net.sent[:FLOODER]) - before) / FLOODER / seconds


def names_of_flooders(net: Net) -> set[tuple[int, str]]:
    return {(who, one.text) for _, who, one in net.log if isinstance(one, Alarm) and one.code == "member-flood"}


STORMS = [("events", 50, 900), ("events", 50, 500), ("events", 10, 12_000), ("meta", 50, 900), ("meta", 50, 600)]


@pytest.mark.parametrize(("kind", "per_s", "size"), few_fast(STORMS, 1))
def test_one_authors_storm_costs_the_others_a_bounded_rate(kind: str, per_s: int, size: int) -> None:
    net = swarm(per_s + size)
    quiet = honest_bytes_s(net, 5)
    storm(net, kind, per_s, size, STORM_S)
    during = honest_bytes_s(net, STORM_S)
    # Once: what an author may have passed on, to every member that lacks it. Then what it may have passed on a second.
    assert during <= quiet + (COUNT - 1) * (BURST_BYTES / STORM_S + BUDGET_BYTES_S), f"{during:,.0f} B/s"
    named = names_of_flooders(net)
    evidence = ("signed by it last: ", "in a frame that it sealed")
    assert all(f"n{FLOODER:03d}" in text and any(one in text for one in evidence) for _, text in named), named
    # One may have heard too little of it: what the others do not pass on.
    assert len({who for who, _ in named}) >= FLOODER - 1, "the flooder is named by all honest members but one at most"
    net.run(SETTLED_S)
    assert honest_bytes_s(net, 5) <= 2 * quiet, "it ends with the storm"


def test_what_honest_members_say_still_goes_first() -> None:
    net = swarm(5)
    storm(net, "events", 50, 500, STORM_S)
    said = {}
    for at in range(2, STORM_S, 2):
        said[f"honest{at}"] = net.now + at * S
        net.at(net.now + at * S, lambda at=at: net.feed(at % FLOODER, UserEvent(f"honest{at}", b"payload")))
    net.run(STORM_S + SETTLED_S)
    took = sorted(
        (when - said[one.name]) // MS for when, who, one in net.delivered() if who != FLOODER and one.name in said
    )
    assert len(took) == len(said) * FLOODER, "each once at each"
    assert took[len(took) // 2] <= 4, f"half of them took {took[len(took) // 2]} ms"
    assert took[-1] <= 100


@pytest.mark.parametrize("kind", ["events", "meta"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_after_a_storm_all_agree_again(kind: str, loss: float) -> None:
    net = swarm(7, loss)
    storm(net, kind, 50, 700, 5)
    net.run(5)
    assert net.run_until(net.agreed, 3 * SETTLED_S, 0.1) is not None


def test_what_is_within_the_budget_is_everywhere_and_nobody_is_named() -> None:
    """A partition heals: all 64 kept events and 30 kB of metadata of two authors on each side cross at once."""
    net = swarm(11)
    left, right = list(range(4)), list(range(4, COUNT))
    net.cut(left, right)
    net.run(10)
    for number in range(60):
        for author in (1, 2, 5, 6):
            net.feed(author, UserEvent(f"{author}-{number}", bytes(300)))
            if number < 30:
                net.feed(author, SetMeta(f"k{number}", bytes(900)))
        net.run(1)
    net.blocked.clear()
    assert net.run_until(net.agreed, 2 * SETTLED_S, 0.1) is not None
    net.run(2)
    for who in range(COUNT):
        assert len([one for _, at, one in net.delivered() if at == who]) == 4 * 60
    assert not names_of_flooders(net)


def said_and_held(net: Net) -> list[dict[str, bytes]]:
    """What the flooder says of itself, and what each other member holds of that."""
    views = ({view.name: view for view in host.node.members()} for host in net.hosts)
    return [dict(seen[f"n{FLOODER:03d}"].meta) for seen in views]


def check_given_back(seconds: float) -> None:
    """After a storm the author loses its disk, and two more have heard nothing of the storm: all hold the same soon.

    Args:
        seconds: How long it may take from when the author is back.
    """
    net = swarm(3)
    for late in (1, 2):
        net.kill(late)
    storm(net, "meta", 50, 1_000, 6)
    net.run(7)
    for back in (1, 2):
        net.restart(back)
    net.kill(FLOODER)
    net.run(4)
    net.restart(FLOODER, keep_journal=False)
    assert net.run_until(net.formed, 5) is not None
    assert len(max(said_and_held(net), key=len)) > 60, "the swarm remembers it"

    def agreed() -> bool:
        held = said_and_held(net)
        return len(held[FLOODER]) > 60 and all(one == held[FLOODER] for one in held)

    assert net.run_until(agreed, seconds, 0.5) is not None, [len(one) for one in said_and_held(net)]


def test_an_author_that_lost_its_disk_is_given_back_what_its_storm_said() -> None:
    check_given_back(15)


def test_what_an_author_says_in_its_life_is_not_given_back_to_it() -> None:
    """It holds all that this life said: what it lacks of that are values that it has replaced."""
    net = swarm(3)
    storm(net, "meta", 50, 1_000, 12)
    net.run(14)
    node = net.hosts[FLOODER].node._core.own.node
    accounts = [host.node._core.relays._authors[node] for host in net.hosts[:FLOODER]]
    assert any(account.floods for account in accounts)
    assert all(account.given_back == 0 for account in accounts)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 20_000), st.integers(0, S)), min_size=20))
@example([(2_000, 0)] * 60)  # All at once.
@example([(8_000, S)] * 60)  # Without end.
def test_what_is_given_back_to_an_author_is_a_copy_and_then_half_a_budget(steps: list[tuple[int, int]]) -> None:
    relays, now, given = Relays(SwimConfig()), 0, 0
    author = NodeId(bytes(16))
    for size, pause in steps:
        now += pause
        if relays.may_give_back(author, size, COUNT, now):
            given += size
        assert given <= BURST_BYTES + BUDGET_BYTES_S // 2 * now / S + 20_000
        assert given <= BURST_BYTES // 2 + 4 * BUDGET_BYTES_S * now / S + 20_000, "at the pace of repairs"


_STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20_000), st.integers(0, 3 * S), st.booleans()))


@settings(deadline=None, max_examples=60)
@given(_STEPS)
def test_an_author_never_has_more_passed_on_than_its_account_holds(steps: list[tuple[int, int, int, bool]]) -> None:
    relays, now = Relays(SwimConfig()), 0
    spent: dict[bytes, int] = {}
    begun: dict[bytes, int] = {}
    for who, size, pause, repairs in steps:
        now += pause
        author = NodeId(bytes([who]) * 16)
        begun.setdefault(author, now)
        if repairs:
            if relays.floods(author) and relays.may_repair(author, size, COUNT, now) and relays.floods(author):
                spent[author] = spent.get(author, 0) + size
        elif relays.may_pass_on(author, size, COUNT, now):
            spent[author] = spent.get(author, 0) + size
        # A repair may begin with less than it takes: one word more, at most.
        assert spent.get(author, 0) <= BURST_BYTES + BUDGET_BYTES_S * (now - begun[author]) / S + 20_000
    assert relays.anybody_floods == any(relays.floods(author) for author in begun)


def test_accounts_of_authors_are_bounded() -> None:
    relays = Relays(SwimConfig())
    for number in range(3_000):
        for _ in range(2):
            relays.may_pass_on(number.to_bytes(16, "big"), 40_000, COUNT, number)
    assert len(relays) <= 1_024
    assert relays.anybody_floods
    for number in range(3_000):
        relays.may_pass_on(number.to_bytes(16, "big"), 1, COUNT, 10_000 * S)
    assert not relays.anybody_floods


def pinged(net: Counted, per_s: int, seconds: float) -> tuple[float, float]:
    """Bytes a second of each node, and the pressure on its budget of probes, while a member pings everybody."""
    thief = Thief(SECRET, net.crypto)
    for _ in range(2):
        for host in net.hosts:
            net.perform(host, thief.meet(host.node, net.now))
        net.run(0.1)

    def ping() -> None:
        for host in net.hosts:
            net.perform(host, thief.say(host.node, [Ping(net.now, b"digests!")], net.now))
        net.at(net.now + S // per_s, ping)

    ping()
    net.run(12)
    before = sum(net.sent)
    net.run(seconds)
    return (sum(net.sent) - before) / len(net.hosts) / seconds, max(h.node._wire.pressure() for h in net.hosts)


@pytest.mark.parametrize("per_s", [10, 150])
def test_who_pings_without_end_fills_no_budget(per_s: int) -> None:
    sent_bytes_s, pressure = pinged(swarm(3), per_s, 10)
    assert sent_bytes_s <= 3 * BUDGET_BYTES_S, f"{sent_bytes_s:,.0f} B/s"
    assert pressure <= 1.1, f"{pressure:.2f}"
