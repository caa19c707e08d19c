"""Law: what one member says of itself, however often and however new, costs every other a bounded share, and no more.

Its words are records, link reports, metadata and events: all signed by it, each newer than the one before. Counted are
checked signatures, rows and bytes; the laws of what is passed on stand in `test_author_laws.py`.
"""

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Alarm, MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim.allowance import Allowance
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.members import LINKS
from swarmd_protocols.swim.messages import (
    Accusation,
    AccusationBody,
    EventBody,
    Links,
    LinksBody,
    Message,
    MetaBody,
    MetaEntry,
    Ping,
    SignedEvent,
    Statement,
)
from swarmd_protocols.swim.relays import Relays
from swarmd_protocols.swim.rules import BOOT_SHIFT
from swarmd_protocols.trust.envelopes import Envelope, key_id
from swarmd_protocols.trust.identity import dev_role_seeds
from tests.property.test_author_laws import BUDGET_BYTES_S, BURST_BYTES, COUNT, FLOODER, Counted, swarm
from tests.support.swim_chatter import MOST, Chatter
from tests.support.swim_net import SECRET, Host, Net, S
from tests.support.swim_thief import Thief

KINDS = (
    "record",
    "moved",
    "away",
    "left",
    "born",
    "links",
    "one key",
    "many keys",
    "large keys",
    "event",
    "large event",
)
CHECKS_MAX = 150
"""Signatures checked for one frame of an author's own words: what its account holds at once, and a tenth more."""
REFUSED_CHECKS_MAX = 100
LAST_S, QUIET_S = 20, 600
"""What an author says beyond its account is passed on at 1,000 B/s by each relay: 64 KiB of events to seven others."""
GAPS_S = 12
"""Twice the patience for what is missing, and a little."""
ROWS_MAX = 64
QUEUED_MAX = 1_024
"""News on its way, a quarter of what a node keeps of all: what one author may have passed on in the smallest words."""
TIMERS_MAX = 1_000
"""Timers more that one author makes a node keep: one for each event heard within the patience of a gap, and a few."""


def timers(host: Host) -> int:
    return len(host.node._core.scheduler._heap)


def bounded_rows(net: Counted, usual_timers: int) -> None:
    author = net.hosts[FLOODER].node.node
    for host in net.hosts[:FLOODER]:
        core, log = host.node._core, host.node._swim.events.logs.get(author)
        assert timers(host) <= usual_timers + TIMERS_MAX
        assert len(core.queue) <= QUEUED_MAX
        assert log is None or (len(log.kept) <= ROWS_MAX and len(log.pending) <= ROWS_MAX)
        assert log is None or log.held_bytes <= 2 << 20
        member = core.table.by_node.get(author)
        held = (member.repair.meta or {}) if member is not None else {}
        assert len(held) <= ROWS_MAX
        assert sum(len(value) for _, value, _ in held.values()) <= core.config.meta_bytes_max


def honest_views(net: Counted) -> int:
    return len({host.node.view_digest() for host in net.hosts[:FLOODER]})


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(1, 400),
        st.sampled_from([1, 1, 1, 2, 1 << 20, 1 << 40]),
        st.sampled_from(["one", "all", "each other"]),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=6,
)


# Not shrunk: what never settles takes seconds an example, and hundreds of those would end in the time limit of a test,
# which says nothing of the cause. A failure prints its steps, few as they are.
@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=12,
    suppress_health_check=list(HealthCheck),
    phases=[phase for phase in Phase if phase not in (Phase.shrink, Phase.explain)],
)
@given(_STEPS)
@example([("large event", 400, 1, "one", 0), ("many keys", 400, 1, "each other", 0)])
@example([("large event", 400, 1 << 40, "one", 0), ("many keys", 72, 1, "one", 3)])
@example([("record", 400, 1, "all", 1), ("left", 3, MOST, "one", 0), ("event", 1, 1, "all", 1)])
@example([("event", 47, 2, "each other", 0)])
@example([("large event", 65, 3, "one", 3)])
def test_whatever_one_author_says_of_itself_costs_the_others_a_bounded_share(
    steps: list[tuple[str, int, int, str, int]],
) -> None:
    net = swarm(len(steps))
    chatter, usual_timers = Chatter(net, FLOODER), max(timers(host) for host in net.hosts)
    began_ns, before = net.now, sum(net.sent[:FLOODER])
    for kind, count, step, whom, pause_s in steps:
        words = chatter.words(kind, count, step)
        for host in net.hosts[: 1 if whom == "one" else FLOODER]:
            if host.node._core.table.by_node.get(chatter.core.own.node) is not None:
                chatter.tell(host, chatter.words(kind, count, step) if whom == "each other" else words)
        bounded_rows(net, usual_timers)
        net.run(pause_s)
    net.run(LAST_S)
    bounded_rows(net, usual_timers)
    assert chatter.most_checks <= CHECKS_MAX
    sent = (sum(net.sent[:FLOODER]) - before) / FLOODER
    seconds = (net.now - began_ns) / S
    # Once: what an author may have passed on, to every member that lacks it. Then twice the budget.
    assert sent <= (COUNT - 1) * BURST_BYTES + 2 * BUDGET_BYTES_S * seconds
    assert net.run_until(lambda: honest_views(net) == 1, QUIET_S, 0.5) is not None, "all honest views are equal"


@pytest.mark.parametrize(("kind", "whom"), [("event", "one"), ("event", "each other"), ("large event", "one")])
def test_gaps_that_were_heard_of_together_are_awaited_together(kind: str, whom: str) -> None:
    net = swarm(10)
    chatter = Chatter(net, FLOODER)
    words = chatter.words(kind, 60, 2)
    for host in net.hosts[: 1 if whom == "one" else FLOODER]:
        chatter.tell(host, words if whom == "one" else chatter.words(kind, 60, 2))
    net.run(GAPS_S)
    assert len([one for _, who, one in net.delivered() if who == 0]) >= 60
    assert net.run_until(lambda: honest_views(net) == 1, 60, 0.5) is not None, "all honest views are equal"


def test_an_author_is_not_sent_what_it_said() -> None:
    net = swarm(11)
    chatter, host = Chatter(net, FLOODER), net.hosts[0]
    chatter.tell(host, chatter.words("event", 20))
    author, events = net.hosts[FLOODER].node.node, host.node._swim.events
    other = net.hosts[1].node.node
    assert len(events.beyond(other, ())) >= 20
    own = [
        encoded for encoded in events.beyond(author, ()) if encoded in {one for _, one in events.logs[author].after(0)}
    ]
    assert not own


LOUD = ["record", "moved", "away", "links", "one key", "many keys", "large keys", "sized keys", "event", "large event"]


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["one", "each other"])
@pytest.mark.parametrize(("kind", "per_s"), [*((kind, 80) for kind in LOUD), ("many keys", 8), ("event", 12)])
def test_whoever_goes_on_for_long_costs_the_others_a_bounded_rate(kind: str, per_s: int, whom: str) -> None:
    # First it uses up what is passed on once, to whoever lacks it: the law above bounds that.
    beside_bytes_s, checks, net = goes_on(kind, whom, per_s, 150 if per_s > 20 else 240, 60)
    assert beside_bytes_s <= 2 * BUDGET_BYTES_S, f"{beside_bytes_s:,.0f} B/s of each"
    assert checks <= CHECKS_MAX
    assert not doubted(net), "no honest member is held for failed"


KEYS_SOON = 3
"""Budgets of metadata under ever new keys while what is passed on once of it is not over: each key replaces another
everywhere."""


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["one", "each other"])
@pytest.mark.parametrize("kind", LOUD)
def test_half_a_minute_after_it_began_a_storm_costs_a_bounded_rate(kind: str, whom: str) -> None:
    check_soon(kind, whom)


def check_soon(kind: str, whom: str) -> None:
    beside_bytes_s, checks, net = goes_on(kind, whom, 80, 30, 20)
    budgets = KEYS_SOON if kind == "many keys" else 2
    assert beside_bytes_s <= budgets * BUDGET_BYTES_S, f"{beside_bytes_s:,.0f} B/s of each"
    assert checks <= CHECKS_MAX
    assert not doubted(net), "no honest member is held for failed"


@pytest.mark.parametrize("session", [b"", bytes(range(32))], ids=["the same session", "a new session"])
@pytest.mark.parametrize("lives", [0, 1])
def test_a_report_of_links_counts_alike_whichever_came_first_it_or_the_record_of_a_new_life(
    lives: int, session: bytes
) -> None:
    """What was said of links in an earlier life is over everywhere, and what is said in the new one counts."""
    net = swarm(11)
    chatter = Chatter(net, FLOODER)
    changes: dict[str, object] = {"session": session} if session else {}
    record = chatter.record(chatter.number + (1 << BOOT_SHIFT), **changes)
    report = chatter.links(chatter.number + 2 + (lives << BOOT_SHIFT))
    for host in net.hosts[:FLOODER]:
        for word in (report, record) if host.index % 2 else (record, report):
            host.node._core.now_ns = net.now
            via = host.node._core.table.by_node[chatter.core.own.node]
            host.node._swim.on_message(via, word, via.address)
    assert honest_views(net) == 1
    assert {host.node._core.table.sections[LINKS] != 0 for host in net.hosts[:FLOODER]} == {lives == 1}


def goes_on(kind: str, whom: str, per_s: int, first_s: int, counted_s: int) -> tuple[float, int, Counted]:
    """One member says newer words without end; what each other sends a second beside the usual, after the first."""
    net = swarm(3)
    before = sum(net.sent[:FLOODER])
    net.run(10)
    quiet_bytes_s = (sum(net.sent[:FLOODER]) - before) / FLOODER / 10
    chatter = Chatter(net, FLOODER)

    def say() -> None:
        words = chatter.words(kind, per_s // 4)
        for host in net.hosts[: 1 if whom == "one" else FLOODER]:
            chatter.tell(host, words if whom == "one" else chatter.words(kind, per_s // 4))
        net.at(net.now + S // 4, say)

    say()
    net.run(first_s)
    before = sum(net.sent[:FLOODER])
    net.run(counted_s)
    loud_bytes_s = (sum(net.sent[:FLOODER]) - before) / FLOODER / counted_s
    return loud_bytes_s - quiet_bytes_s, chatter.most_checks, net


def doubted(net: Counted) -> list[str]:
    """Honest members that any honest member holds for failed."""
    return [
        member.name
        for host in net.hosts[:FLOODER]
        for member in host.node._core.table.by_node.values()
        if member.node != net.hosts[FLOODER].node.node and member.state is MemberState.FAILED
    ]


def test_a_refutation_is_never_beyond_the_account() -> None:
    """A member whose account is empty, direct and through others, is accused; its next incarnation counts at once."""
    net = swarm(5)
    chatter, victim = Chatter(net, FLOODER), net.hosts[0]
    author = chatter.core.own.node
    chatter.tell(victim, chatter.words("record", 400))
    member = victim.node._core.table.by_node[author]
    before = member.incarnation
    chatter.tell(victim, chatter.words("record", 1))
    assert member.incarnation == before, "its account is empty"
    accuser = net.hosts[1].node._core
    body = encode(AccusationBody(accuser.own.node, author, member.incarnation, 0))
    victim.node._core.now_ns = net.now
    victim.node._swim.membership.accusations.on_accusation(Accusation(body, accuser.sign("accuse", body)), None)
    assert member.accusations
    chatter.tell(victim, chatter.words("record", 1))
    assert member.incarnation > before
    assert not member.accusations
    net.run(0.05)
    told = [host.node._core.table.by_node[author].incarnation for host in net.hosts[1:FLOODER]]
    assert told == [member.incarnation] * len(told), "and it is told to others at once"


def test_old_words_that_another_repeats_silence_nobody_and_blame_nobody() -> None:
    net = swarm(6)
    chatter, victim, author = Chatter(net, FLOODER), net.hosts[0], net.hosts[FLOODER].node.node
    words: list[Message] = chatter.words("one key", 400)
    thief = Thief(SECRET, net.crypto)
    for _ in range(2):
        net.perform(victim, thief.meet(victim.node, net.now))
        net.run(0.1)
    for at in range(0, 400, 5):
        net.perform(victim, thief.say(victim.node, words[at : at + 5], net.now))
    assert victim.node._core.counters["words_over_rate"] >= 200, "no more than its account of what others bring"
    own = chatter.words("one key", 1)
    chatter.tell(victim, own)
    (held,) = [entry for _, _, entry in (victim.node._core.table.by_node[author].repair.meta or {}).values()]
    assert held == encode(own[0]), "what it says itself is heard"
    assert not [one for _, who, one in net.log if who == 0 and isinstance(one, Alarm) and one.code == "member-flood"]


def test_absences_without_end_and_comings_and_goings_need_few_timers() -> None:
    net = swarm(7)
    chatter, victim = Chatter(net, FLOODER), net.hosts[0]
    usual = timers(victim)
    for _ in range(60):
        for kind in ("away", "left", "record"):
            chatter.tell(victim, chatter.words(kind, 15))
        net.run(1)
    assert timers(victim) <= usual + 100


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 65_000), st.booleans()), max_size=300))
@example([(number, 65_000, False) for number in range(1, 200)])
@example([(number + 2, 65_000, False) for number in range(1, 200)])
def test_a_log_holds_so_many_bytes_of_one_origin(offers: list[tuple[int, int, bool]]) -> None:
    log = EventLog(0)
    for number, size, skips in offers:
        log.offer(number, "x", bytes(size), bytes(size + 100))
        for _ in log.due(skip_gap=skips):
            pass
        waiting = sum(len(early.payload) + len(early.encoded) for early in log.pending.values())
        kept = sum(len(encoded) for _, encoded in log.kept)
        assert log.held_bytes == waiting + kept
        assert max(waiting, kept) <= 1 << 20
    log.recode(lambda encoded: encoded + bytes(300))
    assert log.held_bytes <= 2 << 20


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, S), st.booleans()), max_size=400))
@example([(0, 0, True)] * 300)
def test_an_author_is_never_looked_at_more_often_than_its_account_holds(steps: list[tuple[int, int, bool]]) -> None:
    relays, now = Relays(SwimConfig()), 0
    taken: dict[tuple[int, bool], int] = {}
    for who, pause_ns, direct in steps:
        now += pause_ns // 50
        author = NodeId(bytes([who]) * 16)
        if relays.may_say(author, COUNT, now, direct=direct):
            relays.said(author, COUNT, now, direct=direct)
            taken[who, direct] = taken.get((who, direct), 0) + 1
        assert all(count <= 136 + 50 * now / S + 1 for count in taken.values())


# --- what does not hold, and who is named -------------------------------------------------------------------------


def bad_words(net: Net, kind: str, count: int) -> list[Message]:
    """Newer words in another's name that it did not sign, or revocations with every key's signature, none of which
    holds."""
    other = net.hosts[1].node._core.own
    numbers = range(other.incarnation + 1, other.incarnation + 1 + count)
    if kind == "statements":
        ids = sorted(key_id(net.crypto.public_key(seed)) for seed in dev_role_seeds(SECRET, "revoke"))
        signatures = [(one, bytes([255]) * 64) for one in ids]
        return [Statement("revoke", Envelope("revoke", b"%d" % at, tuple(signatures)).encode()) for at in numbers]
    if kind == "links":
        return [Links(encode(LinksBody(other.node, at, ())), bytes(64)) for at in numbers]
    if kind == "meta":
        return [MetaEntry(encode(MetaBody(other.node, at, "k", b"")), bytes(64)) for at in numbers]
    return [SignedEvent(encode(EventBody(other.node, at, "x", b"")), bytes(64)) for at in numbers]


@pytest.mark.parametrize("kind", ["links", "meta", "events", "statements"])
def test_a_frame_of_words_that_do_not_hold_costs_so_many_checks(kind: str) -> None:
    net = swarm(8)
    victim, thief = net.hosts[0], Thief(SECRET, net.crypto)
    for _ in range(2):
        net.perform(victim, thief.meet(victim.node, net.now))
        net.run(0.1)
    words = bad_words(net, kind, 400)
    before = net.crypto.checks
    alarms = []
    for at in range(0, len(words), 4):
        effects = thief.say(victim.node, words[at : at + 4], net.now)
        alarms += [one for one in effects if isinstance(one, Alarm)]
    assert net.crypto.checks - before <= REFUSED_CHECKS_MAX + len(dev_role_seeds(SECRET, "revoke"))
    (alarm,) = alarms
    assert alarm.code == "member-flood"
    assert thief.node.hex() in alarm.text
    assert type(words[0]).__name__ in alarm.text
    # Others are heard as before.
    chatter = Chatter(net, FLOODER)
    chatter.tell(victim, chatter.words("one key", 1))
    assert victim.node._core.table.by_node[chatter.core.own.node].repair.meta


def test_each_flooder_is_named_once_a_minute() -> None:
    allowance = Allowance()
    flooders = [NodeId(bytes([at]) * 16) for at in range(3)]
    named: dict[str, int] = {}
    for second in range(130):
        for at, node in enumerate(flooders):
            for _ in range(10):
                alarm = allowance.flooded(node, f"member{at}", "Ping", second * S)
                if alarm is not None:
                    assert node.hex() in alarm.text
                    assert "Ping" in alarm.text
                    named[f"member{at}"] = named.get(f"member{at}", 0) + 1
    assert named == {f"member{at}": 3 for at in range(3)}


def test_accounts_of_who_asks_and_floods_are_bounded() -> None:
    allowance = Allowance()
    for number in range(5_000):
        node = NodeId(number.to_bytes(16, "big"))
        allowance.spend(node, Ping(1, bytes(8)), [], 0, number, brought=False)
        allowance.flooded(node, "x", "Ping", number)
    assert len(allowance) <= 4 * 1_024


def test_a_flood_ends_the_frame_it_stands_in() -> None:
    """What is beyond the account is not even looked up: one message of a frame is counted, the rest stays unread."""
    net = swarm(9)
    chatter, victim = Chatter(net, FLOODER), net.hosts[0]
    chatter.tell(victim, chatter.words("record", 3_000))
    assert victim.node._core.counters["messages_over_rate"] == 1
    assert victim.node._core.counters["words_over_rate"] == 1
