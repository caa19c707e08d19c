"""Mutants of partial views: each breaks one rule of the overlay, and a checker that stands apart catches it."""

import pytest
from msgspec.structs import replace

from swarmd_protocols.channel.channel import Channel
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import Leave, MemberState, UserEvent
from swarmd_protocols.ids import node_id_of
from swarmd_protocols.swim import messages
from swarmd_protocols.swim import neighbors as neighbors_module
from swarmd_protocols.swim.config import SwimConfig
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.full_view import FullView
from swarmd_protocols.swim.members import LINKS, META
from swarmd_protocols.swim.neighbor_news import NeighborNews
from swarmd_protocols.swim.neighbors import Neighbors
from swarmd_protocols.swim.partial_view import PartialView
from swarmd_protocols.swim.passive import PassiveView
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.repair import Repair
from swarmd_protocols.swim.sizing import SizeSketch
from swarmd_protocols.swim.swim import Swim
from swarmd_protocols.swim.user_events import UserEvents
from tests.support import partial_start as start
from tests.support.mutants import assert_found
from tests.support.partial_net import (
    SMALL,
    bounded,
    components,
    failed_at,
    neighbours,
    one_sided,
    overlay,
    partial_net,
    settled,
)
from tests.support.swim_net import SECRET, S
from tests.support.swim_thief import Thief

LEAN = replace(SwimConfig.lean(), full_view_max=12, active_view=5, passive_view=12)

# --- checkers ------------------------------------------------------------------------------------------------


def the_overlay_becomes_mutual():
    net = partial_net(count=24, seconds=10.0)
    net.run(30)
    assert one_sided(net) == []


def lost_neighbours_are_replaced():
    net = partial_net(count=24, seconds=25.0)
    for index in range(8, 24):
        net.kill(index)
    net.run(30)
    assert components(net) == [8]
    assert min(map(len, neighbours(net).values())) >= SMALL.active_view - 1


def passive_views_fill_and_stay_bounded():
    net = partial_net(count=24, seconds=60.0)
    bounded(net)
    sizes = [len(overlay(net, index).shelf.passive) for index in range(24)]
    assert sum(size >= SMALL.passive_view // 2 for size in sizes) >= 20


def neighbours_stay_few():
    net = partial_net(count=24, seconds=40.0)
    assert max(map(len, neighbours(net).values())) <= SMALL.active_view + 2


def liars_fill_no_view():
    net = partial_net(count=16, seconds=15.0)
    thief = Thief(SECRET, net.crypto)
    host = net.hosts[3]
    net.perform(host, thief.meet(host.node, net.now))
    sessions = dict(thief.sessions)
    for at in range(0, 40, 2):
        thief.meet(host.node, net.now)  # A visitor is forgotten after ten seconds.
        thief.sessions |= sessions  # Its counters go on.
        records = tuple(Thief(SECRET, net.crypto, name=f"a{at + more}").record() for more in range(2))
        net.perform(host, thief.say(host.node, [messages.Shuffle(False, records)], net.now))
        held = overlay(net, 3).shelf.passive.values()
        assert sum(entry.via == thief.node for entry in held) <= SMALL.passive_view // 3
        net.run(3)


def forged_records_are_not_kept():
    net = partial_net(count=16, seconds=15.0)
    thief = Thief(SECRET, net.crypto)
    host = net.hosts[3]
    net.perform(host, thief.meet(host.node, net.now))
    stranger = Thief(b"another fleet's secret", net.crypto, name="x")
    net.perform(host, thief.say(host.node, [messages.Shuffle(False, (stranger.record(),))], net.now))
    assert stranger.node not in overlay(net, 3).shelf.passive


def an_event_reaches_everybody():
    net = partial_net(count=24, seconds=25.0)
    for index in range(6):
        net.feed(index, UserEvent(f"e{index}", b""))
        net.run(0.4)
    net.run(3)
    for index in range(6):
        assert sorted(who for _, who, e in net.delivered() if e.name == f"e{index}") == list(range(24))


def an_event_goes_at_once():
    net = partial_net(count=24, seconds=25.0)
    net.feed(2, UserEvent("now", b""))
    net.run(0.2)
    assert sum(e.name == "now" for _, _, e in net.delivered()) == 24


def a_missed_event_is_repaired():
    net = partial_net(count=24, seconds=25.0)
    net.loss = 1.0
    net.feed(1, UserEvent("unheard", b""))
    net.run(1.2)
    net.loss = 0.0
    net.run(12)
    assert sum(e.name == "unheard" for _, _, e in net.delivered()) == 24


def a_death_is_known_to_all_neighbours_soon():
    """In the lean profile each neighbour asks once in six seconds; the first to miss somebody warns the others."""
    net = partial_net(count=24, seconds=60.0, swim=LEAN)
    latest = []
    for victim in (5, 9, 13, 17):
        begin, watchers = net.now, neighbours(net)[victim]
        net.kill(victim)
        net.run(12)
        known = failed_at(net, victim, begin)
        latest.append(max((known.get(who, net.now) for who in watchers), default=begin) - begin)
    assert sorted(latest)[1] < 3 * S


def the_size_is_estimated():
    net = partial_net(count=24, seconds=100.0)
    assert all(12 <= host.node.summary().estimated <= 48 for host in net.hosts)
    assert not any(host.node.summary().counters.get("views_widened") for host in net.hosts)


def a_shrunken_swarm_knows_itself():
    net = partial_net(count=16, seconds=15.0)
    for index in range(5, 16):
        net.feed(index, Leave())
        net.run(0.05)
        net.kill(index)
    assert net.run_until(lambda: not any(h.node.summary().partial for h in net.hosts if h.up), 200, 1.0) is not None


def halves_grow_together():
    net = partial_net(count=24, seconds=40.0)
    assert net.run_until(lambda: settled(net), 60, 1.0) is not None
    net.cut(list(range(12)), list(range(12, 24)))
    net.run(25)
    for host in net.hosts:
        host.node._swim.seeds.clear()  # These would join them too, some time.
    net.blocked.clear()
    assert net.run_until(lambda: components(net) == [24], 15, 0.5) is not None


def the_forgotten_are_met_again_safely():
    crypto = ModelCrypto()
    a, b = (Channel(bytes([at]) * 32, b"boot 1 of the mutants", crypto) for at in (1, 2))
    key = crypto.public_key(bytes([2]) * 32)
    first = a.session(node_id_of(key), key, b.public)
    used = a.seal(first, 1, b"x")[5:9]
    a.retire(first, b.public)
    assert a.seal(a.session(node_id_of(key), key, b.public), 1, b"x")[5:9] != used


def who_pushes_in_is_slowed_down():
    net = partial_net(count=16, seconds=15.0)
    host = net.hosts[3]
    for index in range(10):
        thief = Thief(SECRET, net.crypto, name=f"t{index}")
        net.perform(host, thief.meet(host.node, net.now))
        net.perform(host, thief.say(host.node, [messages.Neighbor(messages.NEIGHBOR_PLEASE, 40)], net.now))
    assert host.node.summary().counters.get("ties_over_rate", 0) >= 1
    assert sum(row.state is MemberState.ALIVE for row in host.node.members()) <= SMALL.active_view + 3


# --- mutants -------------------------------------------------------------------------------------------------


def _nothing(*_args, **_options):
    return None


def _false(*_args, **_options):
    return False


def _true(*_args, **_options):
    return True


def _silent_parting(patch):
    """Neighbours are dropped without a word, and nobody is told that it is none."""
    original = Neighbors.say

    def say(self, member, kind):
        if kind != messages.DISCONNECT:
            original(self, member, kind)

    patch.setattr(Neighbors, "say", say)
    patch.setattr(Neighbors, "disconnect_rider", lambda self, member: [])


def _no_share(patch):
    """Whoever hands out records may fill the passive view: its own limit is that of the whole view."""
    original = PassiveView._keep

    def keep(self, node, known):
        via, known.via = known.via, self.core.own.node
        original(self, node, known)
        known.via = via

    patch.setattr(PassiveView, "_keep", keep)


def _no_words(*_args, **_options):
    return []


def _pulse_untold(patch):
    """A pulse tells a full view nothing."""
    patch.setattr(FullView, "on_size_estimate", _nothing)


def _untold_of_others(patch):
    """Who says that there is more is not asked whom it knows."""
    patch.setattr(FullView, "on_shuffle", _nothing)


def _seeds_unasked(patch):
    """Who has neighbours never greets a seed."""
    original = Swim._tries_a_seed

    def tries(self):
        return not (self.core.view.partial and self.core.table.reachable) and original(self)

    patch.setattr(Swim, "_tries_a_seed", tries)


def _tells_everything(patch):
    """A partial view hands all records that it holds to every newcomer."""
    patch.setattr(PartialView, "own_sections", (META,))
    patch.setattr(PartialView, "unasked_sections", (LINKS,))


def _only_the_large(patch):
    """Who says that its view is partial is believed only where the swarm is larger than the limit."""
    original = FullView.be_told

    def be_told(self, member, size):
        if size > self.core.config.full_view_max:
            original(self, member, size)

    patch.setattr(FullView, "be_told", be_told)


MUTANTS = [
    ("symmetric disconnect", the_overlay_becomes_mutual, _silent_parting),
    ("passive repair", lost_neighbours_are_replaced, lambda patch: patch.setattr(Neighbors, "fill", _nothing)),
    ("shuffle", passive_views_fill_and_stay_bounded, lambda patch: patch.setattr(PassiveView, "shuffle", _nothing)),
    ("bound of neighbours", neighbours_stay_few, lambda patch: patch.setattr(Neighbors, "most", 10**6)),
    ("share of one source", liars_fill_no_view, _no_share),
    ("signatures of records", forged_records_are_not_kept, lambda patch: patch.setattr(PassiveView, "_holds", _true)),
    ("strangers", an_event_reaches_everybody, lambda p: p.setattr(UserEvents, "on_certified_event", _nothing)),
    ("digest of events", a_missed_event_is_repaired, lambda patch: patch.setattr(Repair, "sections_due", _false)),
    ("travelling news", an_event_goes_at_once, lambda patch: patch.setattr(Core, "travels", _false)),
    ("warnings", a_death_is_known_to_all_neighbours_soon, lambda patch: patch.setattr(NeighborNews, "warn", _nothing)),
    ("minima", the_size_is_estimated, lambda patch: patch.setattr(NeighborNews, "on_size_estimate", _nothing)),
    ("epochs", a_shrunken_swarm_knows_itself, lambda patch: patch.setattr(SizeSketch, "tick", _nothing)),
    ("lost neighbours", halves_grow_together, lambda patch: patch.setattr(neighbors_module, "_LOST_MAX", 0)),
    ("counters", the_forgotten_are_met_again_safely, lambda patch: patch.setattr(Channel, "retire", _nothing)),
    ("rate of evictions", who_pushes_in_is_slowed_down, lambda patch: patch.setattr(Neighbors, "_may_evict", _true)),
    ("asked anew", start.a_busy_member_is_not_called_dead, lambda p: p.setattr(Prober, "on_hello_from", _nothing)),
    ("parting", start.a_busy_member_is_not_called_dead, lambda p: p.setattr(Neighbors, "disconnect_rider", _no_words)),
    ("estimate tells", start.a_pulse_says_that_a_view_is_partial, _pulse_untold),
    ("records of tellers", start.an_island_of_full_views_is_taken_in, _untold_of_others),
    ("seeds are asked", start.islands_of_partial_views_grow_together, _seeds_unasked),
    ("own record alone", start.newcomers_are_not_shown_everybody, _tells_everything),
    ("small is partial", start.a_newcomer_gets_into_a_shrunken_swarm, _only_the_large),
]  # fmt: skip


@pytest.mark.parametrize("checker", sorted({checker for _, checker, _ in MUTANTS}, key=lambda item: item.__name__))
def test_the_unbroken_code_passes(checker):
    checker()


@pytest.mark.parametrize(("name", "checker", "mutate"), MUTANTS, ids=[name for name, _, _ in MUTANTS])
def test_the_mutant_is_caught(name, checker, mutate, monkeypatch):
    assert_found(mutate, checker, monkeypatch)
