"""Law: what a member says of its links counts while it is here, and only then.

Two members that say they hear a deaf one keep it from being failed. Who died, left or went away says nothing any more:
it keeps no dead member among the living, and no healthy one degraded. What others have signed of a member counts as
soon as too few hear it. Who has signed itself that a member failed speaks for it no longer. A member that was forgotten
and is met again counts as one that never was: nobody's word about it is counted twice, or taken back twice. What is
said in a member's name with its stolen key stands until the member hears of it, and no longer.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import Command, GoAway, Leave, MemberState
from swarmd_protocols.swim.members import REACHABLE, Member
from swarmd_protocols.swim.messages import (
    LEVEL_FAILED,
    LEVEL_SUSPECT,
    LEVEL_UNRESPONSIVE,
    LINK_ONE_WAY,
    Accusation,
    AccusationBody,
    Links,
    LinksBody,
)
from swarmd_protocols.swim.rules import BOOT_SHIFT, WITNESSES_WANTED
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from swarmd_protocols.trust.requests import AddStatement
from tests.support.swim_chatter import Chatter
from tests.support.swim_net import SECRET, Net

COUNT = 7
DEAF = 6
OTHERS = range(DEAF)
BOUND_S = 13.0
"""A death is known within 8 s, and 5 s later where the dead one was deaf: the bound of `membership.undetected`."""
ENDS = ("dies", "leaves", "goes away")


def deafened(seed: int) -> Net:
    """A swarm in which one member hears nobody, and all others say of it that they hear it."""
    net = Net(COUNT, seed)
    assert net.run_until(net.formed, 8) is not None
    net.cut(list(OTHERS), [DEAF], one_way=True)
    assert net.run_until(lambda: all(seen(net, index).report.witnesses >= 2 for index in OTHERS), 20) is not None
    assert net.all_see(MemberState.DEGRADED, DEAF, list(OTHERS))
    return net


def seen(net: Net, observer: int, subject: int = DEAF) -> Member:
    return net.hosts[observer].node._core.table.by_node[net.hosts[subject].node.node]


def end(net: Net, index: int, how: str) -> None:
    """A member takes its leave in one of three ways; nothing is heard of it from then on."""
    if how == "leaves":
        net.feed(index, Leave())
    elif how == "goes away":
        net.feed(index, GoAway(60_000_000_000))
    if how != "dies":
        net.run(0.1)
    net.hosts[index].dark = True


def check_counts(net: Net, observers: list[int]) -> None:
    """At each node each count is what the members that are here say, no more and no less."""
    for observer in observers:
        table = net.hosts[observer].node._core.table.by_node
        for member in table.values():
            signed = [who for who, held in (member.accusations or {}).items() if held.level == LEVEL_FAILED]
            here = [one for one in table.values() if one.state in REACHABLE and one.node not in signed]
            words = [dict(one.report.links).get(member.node, 0) for one in here]
            assert member.report.witnesses == words.count(LINK_ONE_WAY)
            assert member.report.reporters == sum(1 for word in words if word)


gone_ones = st.lists(st.sampled_from(OTHERS), min_size=2, max_size=4, unique=True)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(gone=gone_ones, hows=st.lists(st.sampled_from(ENDS), min_size=4, max_size=4), seed=st.integers(0, 99))
@example(gone=[0, 2, 4], hows=["leaves", "dies", "dies", "dies"], seed=1)
def test_who_was_deaf_and_died_with_its_witnesses_is_known_to_be_dead(gone, hows, seed):
    check_dead_witnesses(gone, hows, seed)


def check_dead_witnesses(gone: list[int], hows: list[str], seed: int) -> None:
    net = deafened(seed)
    left = [index for index in OTHERS if index not in gone]
    net.hosts[DEAF].dark = True
    for index, how in zip(gone, hows, strict=False):
        end(net, index, how)
    assert net.run_until(lambda: net.all_see(MemberState.FAILED, DEAF, left), BOUND_S) is not None
    check_counts(net, left)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(gone=gone_ones, hows=st.lists(st.sampled_from(ENDS), min_size=4, max_size=4), seed=st.integers(0, 99))
@example(gone=[0, 2, 4], hows=["leaves", "dies", "goes away", "dies"], seed=1)
def test_who_hears_again_is_degraded_on_no_word_of_those_that_are_gone(gone, hows, seed):
    net = deafened(seed)
    left = [index for index in OTHERS if index not in gone]
    for index, how in zip(gone, hows, strict=False):
        end(net, index, how)
    net.blocked.clear()
    assert net.run_until(lambda: net.all_see(MemberState.ALIVE, DEAF, left), BOUND_S) is not None
    check_counts(net, left)


@settings(max_examples=4, deadline=None, derandomize=True)
@given(gone=gone_ones, seed=st.integers(0, 99))
def test_the_word_of_who_returns_in_the_same_life_counts_again(gone, seed):
    check_returned_witnesses(gone, seed)


def check_returned_witnesses(gone: list[int], seed: int) -> None:
    """Witnesses are cut off for long enough to be failed, and come back with no new report."""
    net = deafened(seed)
    left = [index for index in OTHERS if index not in gone]
    net.cut(gone, left)
    assert net.run_until(lambda: all(net.all_see(MemberState.FAILED, index, left) for index in gone), 20) is not None
    check_counts(net, left)
    net.blocked -= {(a, b) for a in OTHERS for b in OTHERS}
    back = lambda: all(seen(net, b, a).state in REACHABLE for a in gone for b in left)  # noqa: E731
    assert net.run_until(back, 30) is not None
    check_counts(net, left)
    assert net.all_see(MemberState.DEGRADED, DEAF, left)


def after(net: Net, index: int) -> list[int]:
    """The other members in the order in which they follow one on the ring."""
    ring = sorted(net.hosts, key=lambda host: host.node.node)
    at = ring.index(net.hosts[index])
    return [host.index for host in [*ring[at + 1 :], *ring[:at]]]


def accuse(net: Net, accuser: int, observer: int, level: int = LEVEL_FAILED) -> None:
    """An observer is told, signed, that a member finds the deaf one failed, or less."""
    body = encode(
        AccusationBody(net.hosts[accuser].node.node, seen(net, observer).node, seen(net, observer).incarnation, level)
    )
    word = Accusation(body, net.hosts[accuser].node._core.sign("accuse", body))
    net.hosts[observer].node._swim.membership.accusations.on_accusation(word, None)


def revoke(net: Net, index: int) -> None:
    """A member's certificate is revoked, at every member at once."""
    said = Revocation("test", 1, (net.hosts[index].node.node,), "stolen")
    statement = sign_statement("revoke", said, dev_role_seeds(SECRET, "revoke")[:1], net.crypto)
    for other in OTHERS:
        net.feed(other, Command("node", AddStatement("revoke", statement)))


@settings(max_examples=6, deadline=None, derandomize=True)
@given(how=st.sampled_from((*ENDS, "is revoked", "hears it no more")), seed=st.integers(0, 99))
@example(how="is revoked", seed=1)
def test_what_others_found_counts_as_soon_as_too_few_hear_the_deaf_one(how, seed):
    check_waiting_verdicts(how, seed)


def check_waiting_verdicts(how: str, seed: int) -> None:
    """Two members hear a deaf one that three others find failed; then one of the two ends."""
    net = deafened(seed)
    # Who hears nobody shows that it lives to those that follow it on the ring.
    first, second, *others = after(net, DEAF)
    observer, *accusers = others
    net.cut([DEAF], others, one_way=True)
    two = lambda: all(seen(net, index).report.witnesses == WITNESSES_WANTED for index in others)  # noqa: E731
    assert net.run_until(two, 20) is not None
    for accuser in accusers:
        accuse(net, accuser, observer)
    net.run(0.1)
    assert seen(net, observer).report.witnesses == WITNESSES_WANTED
    assert seen(net, observer).state in REACHABLE
    if how == "is revoked":
        revoke(net, second)
    elif how == "hears it no more":
        net.cut([DEAF], [second])
    else:
        end(net, second, how)
    assert net.run_until(lambda: seen(net, observer).report.witnesses < WITNESSES_WANTED, BOUND_S, 0.001) is not None
    net.run(0.001)
    assert seen(net, observer).state is MemberState.FAILED
    check_counts(net, [observer, first])


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    said=st.lists(st.sampled_from((LEVEL_SUSPECT, LEVEL_UNRESPONSIVE, LEVEL_FAILED)), min_size=5, max_size=5),
    seed=st.integers(0, 99),
)
@example(said=[LEVEL_FAILED] * 5, seed=1)
@example(said=[LEVEL_SUSPECT, LEVEL_UNRESPONSIVE, LEVEL_FAILED, LEVEL_FAILED, LEVEL_SUSPECT], seed=1)
def test_who_has_declared_a_member_failed_speaks_for_it_no_longer(said, seed):
    check_signers(said, seed)


def check_signers(said: list[int], seed: int) -> None:
    """Whatever becomes of the report that takes its word back, until the member refutes what was signed."""
    net = deafened(seed)
    observer, *others = OTHERS
    witnesses = [
        other
        for other in others
        if dict(seen(net, observer, other).report.links).get(net.hosts[DEAF].node.node) == LINK_ONE_WAY
    ]
    assert seen(net, observer).report.witnesses == len(witnesses)
    accusers = sorted(others, key=lambda other: other not in witnesses)
    for accuser, level in zip(accusers, said, strict=True):
        accuse(net, accuser, observer, level)
    left = len(witnesses) - said[: len(witnesses)].count(LEVEL_FAILED)
    assert seen(net, observer).report.witnesses == left
    net.hosts[observer].node._swim.membership.links.weigh_of(seen(net, observer, other).node for other in others)
    assert seen(net, observer).report.witnesses == left
    check_counts(net, [observer])
    if left < WITNESSES_WANTED and said.count(LEVEL_FAILED) >= 3:
        net.hosts[DEAF].dark = True
        assert net.run_until(lambda: seen(net, observer).state is MemberState.FAILED, 1) is not None
        return
    before = seen(net, observer).incarnation
    net.blocked.clear()
    assert net.run_until(lambda: seen(net, observer).incarnation > before, 10, 0.001) is not None
    check_counts(net, [observer])
    assert net.run_until(lambda: net.all_see(MemberState.ALIVE, DEAF, list(OTHERS)), BOUND_S) is not None
    check_counts(net, list(OTHERS))


@settings(max_examples=3, deadline=None, derandomize=True)
@given(seed=st.integers(0, 99))
@example(seed=1)
def test_who_was_forgotten_and_is_met_again_has_the_witnesses_that_it_has(seed):
    check_met_again(seed)


def check_met_again(seed: int) -> None:
    net = deafened(seed)
    observer = OTHERS[0]
    net.hosts[observer].node._swim.membership.forget(seen(net, observer))
    known = net.hosts[observer].node._core.table.by_node
    assert net.run_until(lambda: net.hosts[DEAF].node.node in known, 10, 0.001) is not None
    check_counts(net, [observer])
    assert seen(net, observer).report.witnesses >= WITNESSES_WANTED
    assert seen(net, observer).state is MemberState.DEGRADED
    net.blocked.clear()
    assert net.run_until(lambda: net.all_see(MemberState.ALIVE, DEAF, list(OTHERS)), BOUND_S) is not None
    net.run(5)
    check_counts(net, [observer])
    assert seen(net, observer).report.witnesses == 0


STOLEN = (4, 5)
"""Two keys, one after the other: two reports of a broken link are what makes a member DEGRADED."""
OVERTAKEN_S = 5.0
"""A lie that was told to one alone comes to its author by a comparison of views."""


def lie(net: Net, thief: int, told: list[int], ahead: int, quality: int) -> None:
    """The holder of a member's key says in its name that all links are broken; the member itself does not know."""
    chatter = Chatter(net, thief)
    own = chatter.core.own.node
    entries = tuple((host.node.node, quality) for host in net.hosts if host.node.node != own)
    body = encode(LinksBody(own, (1 << BOOT_SHIFT) + ahead, entries))
    for index in told:
        chatter.tell(net.hosts[index], [Links(body, chatter.core.sign("links", body))])


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    told=st.lists(st.sampled_from(range(4)), min_size=1, max_size=4, unique=True),
    ahead=st.sampled_from([1, 50, 1 << 19, 1 << 20, 1 << 45]),
    quality=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@example(told=[0, 1, 2, 3], ahead=2, quality=1, seed=1)
@example(told=[2], ahead=1 << 45, quality=3, seed=2)
def test_what_is_said_of_links_in_a_members_name_ends_when_the_member_hears_of_it(told, ahead, quality, seed):
    check_overtaken(told, ahead, quality, seed)


def check_overtaken(told: list[int], ahead: int, quality: int, seed: int) -> None:
    net = Net(COUNT, seed)
    assert net.run_until(net.formed, 8) is not None
    net.run(2)
    everybody = list(range(COUNT))
    for thief in STOLEN:
        lie(net, thief, told, ahead, quality)
    net.run(OVERTAKEN_S)
    assert all(net.all_see(MemberState.ALIVE, index) for index in everybody)
    assert not any(seen(net, a, b).report.reporters for a in everybody for b in everybody if a != b)
    assert net.agreed()
    # Nothing is answered that was answered.
    answered = [host.node._core.counters["link_reports_overtaken"] for host in net.hosts]
    assert [answered[thief] for thief in STOLEN] == [1, 1]
    assert sum(answered) == len(STOLEN)
    # Its word counts again.
    before = [seen(net, 0, thief).report.links_sequence for thief in STOLEN]
    for thief in STOLEN:
        net.hosts[thief].node._swim.membership.links.changed()
    net.run(2)
    assert all(seen(net, 0, thief).report.links_sequence > old for thief, old in zip(STOLEN, before, strict=True))


def test_the_answer_to_a_lie_of_who_is_deaf_is_urgent():
    """It is out as soon as links are published that broke: 0.2 s, and a way to each."""
    for seed in range(6):
        net = Net(COUNT, seed)
        assert net.run_until(net.formed, 8) is not None
        net.run(2)
        for thief in STOLEN:
            lie(net, thief, [0, 1, 2, 3], 2, LINK_ONE_WAY)
        net.run(0.24)
        assert not any(seen(net, 0, other).report.reporters for other in range(1, COUNT))


def test_an_invented_report_in_a_members_name_is_not_answered():
    net = Net(COUNT, 3)
    assert net.run_until(net.formed, 8) is not None
    net.run(2)
    chatter, victim = Chatter(net, STOLEN[0]), net.hosts[0]
    core = victim.node._core
    rejected = core.counters["rejected"]
    for body in (LinksBody(core.own.node, (1 << BOOT_SHIFT) + 9, ()), LinksBody(core.own.node, 1 << 62, ())):
        raw = encode(body)
        chatter.tell(victim, [Links(raw, chatter.core.sign("links", raw))])
    # The largest numbers too: signed by its key, people would be told of one.
    assert core.counters["rejected"] == rejected + 2
    assert core.counters["link_reports_overtaken"] == 0
    net.run(1)
    assert victim.node._swim.membership.links.own_fp == 0
