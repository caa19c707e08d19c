"""Mutants of membership: each breaks one rule, and a checker that stands apart catches it.

Every checker passes on the unbroken code first; the mutant must make the same checker fail.
"""

import pytest

from swarmd_protocols.channel.channel import ReplayWindow
from swarmd_protocols.channel.codec import encode
from swarmd_protocols.effects import HostAnswer, MemberState, UserEvent
from swarmd_protocols.ids import NodeId
from swarmd_protocols.swim import accusations as accusations_module
from swarmd_protocols.swim import allowance, hosts, user_events
from swarmd_protocols.swim import links as links_module
from swarmd_protocols.swim import swim as swim_module
from swarmd_protocols.swim.allowance import Allowance
from swarmd_protocols.swim.core import Core
from swarmd_protocols.swim.event_journal import EventJournal
from swarmd_protocols.swim.event_log import EventLog
from swarmd_protocols.swim.helpers import Helpers
from swarmd_protocols.swim.hosts import HostEvidence
from swarmd_protocols.swim.links import LinkReports
from swarmd_protocols.swim.membership import Membership
from swarmd_protocols.swim.messages import Accusation, AccusationBody, Alive, AliveBody, Fingerprints
from swarmd_protocols.swim.own_record import OwnRecord
from swarmd_protocols.swim.prober import Prober
from swarmd_protocols.swim.repair import Repair
from swarmd_protocols.swim.user_events import UserEvents
from swarmd_protocols.trust import roots
from tests.property import test_link_report_laws as link_reports
from tests.support.mutants import assert_found
from tests.support.swim_net import SECRET, Net
from tests.support.swim_thief import Thief
from tests.unit import test_swim_bounded_work as bounded
from tests.unit import test_swim_hostile as hostile
from tests.unit import test_swim_regressions as regressions
from tests.unit import test_swim_ways as ways

FAILED, ALIVE = MemberState.FAILED, MemberState.ALIVE


def formed(count=6, seed=1, **options):
    net = Net(count, seed, **options)
    assert net.run_until(net.formed, 8) is not None
    net.run(2)
    return net


# --- checkers ------------------------------------------------------------------------------------------------


def refutation_wins():
    net = formed()
    net.hosts[2].dark = True
    assert net.run_until(lambda: net.all_see(FAILED, 2, [0, 1, 3, 4, 5]), 10) is not None
    net.hosts[2].dark = False
    assert net.run_until(net.formed, 5) is not None


def health_is_kept_by_nacks():
    net = formed()
    net.hosts[2].dark = True
    worst = 0
    for _ in range(60):
        net.run(0.05)
        worst = max(worst, *(net.hosts[index].node.summary().local_health for index in (0, 1, 3, 4, 5)))
    assert worst <= 1


def missed_news_is_repaired():
    net = formed(8)
    net.loss = 1.0
    net.feed(1, UserEvent("unheard", b""))
    net.run(1.2)
    net.loss = 0.0
    net.run(6)
    assert len([1 for _, _, e in net.delivered() if e.name == "unheard"]) == 8
    assert net.agreed()


def forgeries_change_nothing():
    net = formed(4)
    thief = Thief(SECRET, net.crypto)
    for host in net.hosts:
        net.perform(host, thief.meet(host.node, net.now))
    node = net.hosts[0].node
    core = net.hosts[1].node._core
    body = encode(
        AliveBody(core.own.node, core.own.incarnation + 1, 1, 0, "6.6.6.6:6", core.own.session_public, "", "")
    )
    thief.say(node, [Alive(body, thief.sign("alive", body))], net.now)
    third = net.hosts[2].node._core.own
    for accuser in (1, 3):
        claim = encode(AccusationBody(net.hosts[accuser].node.node, third.node, third.incarnation, 2))
        thief.say(node, [Accusation(claim, thief.sign("accuse", claim))], net.now)
    rows = {row.name: row for row in node.members()}
    assert rows["n001"].state is ALIVE
    assert rows["n001"].address == net.address(1)
    assert rows["n002"].state is ALIVE


def one_stolen_key_kills_nobody():
    net = formed(30)
    thief = Thief(SECRET, net.crypto)
    for host in net.hosts:
        net.perform(host, thief.meet(host.node, net.now))
    begin = net.now
    for _ in range(10):
        own = net.hosts[3].node._core.own
        for host in net.hosts:
            net.perform(host, thief.say(host.node, [thief.accusation(own.node, own.incarnation)], net.now))
        net.run(0.3)
    assert [e for _, _, e in net.changes(FAILED, begin) if e.name == "n003"] == []


def old_records_change_nothing():
    net = formed(3)
    core = net.hosts[1].node._core
    old = core.own.encoded_alive
    net.feed(1, _away(net))
    net.run(1)
    node = net.hosts[0].node
    assert net.states(0)["n001"] is MemberState.AWAY
    thief = Thief(SECRET, net.crypto)
    net.perform(net.hosts[0], thief.meet(node, net.now))
    import msgspec

    thief.say(node, [msgspec.msgpack.decode(old, type=Alive)], net.now)
    assert net.states(0)["n001"] is MemberState.AWAY


def _away(net):
    from swarmd_protocols.effects import GoAway

    return GoAway(60 * 10**9)


def old_accusations_change_nothing():
    """What was said of an earlier incarnation is over once the member has refuted."""
    net = formed(12)
    core = net.hosts[0].node._core
    subject = net.hosts[3].node._core.own
    stale = subject.incarnation
    subject_membership = net.hosts[3].node._swim.membership
    core.now_ns = net.now
    net.hosts[3].node._core.now_ns = net.now
    subject_membership.own.refute(NodeId(bytes(16)), None)
    net.run(2)
    begin = net.now
    thieves = [Thief(SECRET, net.crypto, name=f"t{index}") for index in range(4)]
    for thief in thieves:
        net.perform(net.hosts[0], thief.meet(net.hosts[0].node, net.now))
    net.run(0.5)
    for thief in thieves:
        thief.say(net.hosts[0].node, [thief.accusation(subject.node, stale)], net.now)
    net.run(1)
    changed = [e for _, who, e in net.log if _ >= begin and who == 0 and getattr(e, "name", "") == "n003"]
    assert changed == []
    assert net.states(0)["n003"] is ALIVE


def frozen_nodes_are_not_failed():
    net = formed(8)
    begin = net.now
    net.freeze(1)
    net.run(5)
    net.thaw(1)
    net.run(2)
    assert net.changes(FAILED, begin) == []


def deaf_nodes_are_not_failed():
    net = formed(8)
    begin = net.now
    net.cut([0, 1, 2, 3, 4, 5, 6], [7], one_way=True)
    net.run(15)
    assert net.changes(FAILED, begin) == []


def replays_open_nothing():
    net = formed(3)
    net.keep_frames = True
    net.run(1)
    node = net.hosts[0].node
    from swarmd_protocols.effects import DatagramReceived

    before = node.summary().counters.get("unopened", 0)
    frames = [data for _, target, data in net.frames if target == 0 and data[0] & 15 == 1]
    for data in frames:
        node.handle(DatagramReceived(net.address(1), data), net.now)
    assert node.summary().counters.get("unopened", 0) - before == len(frames)


def strangers_stay_out():
    net = formed(3)
    stranger = Thief(SECRET, net.crypto)
    from swarmd_protocols.trust.identity import make_dev_identity

    stranger.identity = make_dev_identity(b"some other fleet's secret", "test", "x", net.crypto)
    stranger.node = stranger.identity.node
    stranger.meet(net.hosts[0].node, net.now)
    assert len(net.hosts[0].node.members()) == 3


def events_come_in_order():
    net = formed(8, loss=0.0)
    net.loss = 0.4
    for index in range(30):
        net.feed(2, UserEvent(f"{index:03d}", b""))
        net.run(0.05)
    net.loss = 0.0
    net.run(8)
    for observer in range(8):
        got = [e.name for _, who, e in net.delivered() if who == observer]
        assert got == sorted(got)
        assert len(got) == 30


def helpers_keep_a_broken_pair_alive():
    net = formed(6)
    begin = net.now
    net.cut([2], [4])
    net.run(12)
    assert net.changes(FAILED, begin) == []


def one_member_is_answered_up_to_a_bound():
    bounded.test_what_one_member_asks_is_answered_up_to_a_bound(Fingerprints(0, -1, b""))


# --- mutants -------------------------------------------------------------------------------------------------


def _nothing(*_args, **_options):
    return None


def _ignore_incarnation_of_accusations(patch):
    original = accusations_module.decode_body

    def lenient(decoder, raw):
        body = original(decoder, raw)
        if isinstance(body, AccusationBody):
            for member in _ignore_incarnation_of_accusations.table().values():
                if member.node == body.subject:
                    return AccusationBody(body.accuser, body.subject, member.incarnation, body.level)
        return body

    tables = []
    init = Membership.__init__

    def remember(self, core, *parts):
        tables.append(core.table.by_node)
        init(self, core, *parts)

    patch.setattr(Membership, "__init__", remember)
    _ignore_incarnation_of_accusations.table = lambda: tables[0]
    patch.setattr(accusations_module, "decode_body", lenient)


def _take_older_records(patch):
    def on_alive(self, message, via):
        body = self._alive_body(message.body, via)
        member = self.core.table.by_node.get(body.node)
        if member is not None:
            self._merge(member, body, message.body, message.signature, via)

    patch.setattr(Membership, "on_alive", on_alive)


def _ignore_open_hosts(patch):
    original = HostEvidence.on_host
    patch.setattr(
        HostEvidence,
        "on_host",
        lambda self, address, answer: original(
            self, address, HostAnswer.SILENT if answer is HostAnswer.OPEN else answer
        ),
    )


def _gaps_wait_for_nobody(patch: pytest.MonkeyPatch) -> None:
    """Neither for who answers nothing, nor for an origin that is cut off."""
    patch.setattr(UserEvents, "_is_answered", lambda _: True)
    patch.setattr(user_events, "_is_cut_off", lambda *_: False)


def _hear_everything(patch):
    patch.setattr(Allowance, "hears", lambda *_: True)


def a_silent_way_is_replaced():
    ways.test_a_way_that_falls_silent_is_replaced_and_nobody_is_suspected(1)


def _ping_the_same_way(prober, probe):
    probe.attempts += 1
    prober.send_ping(probe.member, probe)


def _refused_on_any_way(evidence, address):
    for member in evidence.core.table.at(address):
        if member.where >= 0:
            evidence._on_refused(member)


def _weigh_everybody_s_word(patch):
    patch.setattr(links_module, "REACHABLE", tuple(MemberState))


def _weigh_nobody_s_word_twice(patch):
    whole, silenced = LinkReports.weigh, set()

    def weigh(reports, reporter):
        if reporter.state in links_module.REACHABLE and reporter in silenced:
            return
        if reporter.state not in links_module.REACHABLE:
            silenced.add(reporter)
        whole(reports, reporter)

    patch.setattr(LinkReports, "weigh", weigh)


def _say_of_the_gone_that_they_are_heard(patch):
    whole = Membership.fail

    def fail(judge, member, reason, **how):
        quality, member.link.quality = member.link.quality, 0
        whole(judge, member, reason, **how)
        member.link.quality = quality

    patch.setattr(Membership, "fail", fail)


def _move_in_silence(own, address):
    own.core.own.address = address


MUTANTS = [
    ("refutation", refutation_wins, lambda patch: patch.setattr(OwnRecord, "refute", _nothing)),
    ("nack", health_is_kept_by_nacks, lambda patch: patch.setattr(Helpers, "_relay_nack", _nothing)),
    ("digest", missed_news_is_repaired, lambda patch: patch.setattr(Repair, "sections_due", lambda *_: False)),
    ("signature check", forgeries_change_nothing, lambda patch: patch.setattr(Core, "signed_by", lambda *_: True)),
    (
        "K signers",
        one_stolen_key_kills_nobody,
        lambda patch: patch.setattr(accusations_module, "accusers_wanted", lambda *_: 1),
    ),
    ("incarnation of records", old_records_change_nothing, _take_older_records),
    ("incarnation of accusations", old_accusations_change_nothing, _ignore_incarnation_of_accusations),
    ("host evidence", frozen_nodes_are_not_failed, _ignore_open_hosts),
    ("witnesses", deaf_nodes_are_not_failed, lambda patch: patch.setattr(LinkReports, "on_links", _nothing)),
    (
        "the word of the gone",
        lambda: link_reports.check_dead_witnesses([0, 2, 4], ["leaves", "dies", "dies"], 1),
        _weigh_everybody_s_word,
    ),
    (
        "the word of who is back",
        lambda: link_reports.check_returned_witnesses([0, 1], 1),
        _weigh_nobody_s_word_twice,
    ),
    (
        "verdicts that waited",
        lambda: link_reports.check_waiting_verdicts("is revoked", 1),
        lambda patch: patch.setattr(accusations_module.Accusations, "weigh_again", _nothing),
    ),
    (
        "the word of who holds it for gone",
        lambda: link_reports.check_waiting_verdicts("hears it no more", 1),
        _say_of_the_gone_that_they_are_heard,
    ),
    (
        "lies in a member's name",
        lambda: link_reports.check_overtaken([0, 1, 2, 3], 2, 1, 1),
        lambda patch: patch.setattr(LinkReports, "_on_own_report", _nothing),
    ),
    (
        "the number of such a lie",
        lambda: link_reports.check_overtaken([2], 1 << 45, 3, 2),
        lambda patch: patch.setattr(LinkReports, "next_sequence", lambda reports: reports.core.own.boot << 20),
    ),
    (
        "the answer to such a lie",
        link_reports.test_the_answer_to_a_lie_of_who_is_deaf_is_urgent,
        lambda patch: patch.setattr(LinkReports, "_overtaken", property(lambda _: None, _nothing), raising=False),
    ),
    (
        "who signed such a lie",
        link_reports.test_an_invented_report_in_a_members_name_is_not_answered,
        lambda patch: patch.setattr(Core, "signed_by", lambda *_: True),
    ),
    ("replay window", replays_open_nothing, lambda patch: patch.setattr(ReplayWindow, "fresh", lambda *_: True)),
    (
        "certificate",
        strangers_stay_out,
        lambda patch: patch.setattr(roots, "role_of", lambda link, name: _AnyKey.role()),
    ),
    ("event order", events_come_in_order, lambda patch: patch.setattr(EventLog, "follows", lambda *_: True)),
    (
        "indirect probe",
        helpers_keep_a_broken_pair_alive,
        lambda patch: patch.setattr(Helpers, "ask_helpers", _nothing),
    ),
    (
        "a silent host is asked again",
        lambda: regressions.test_the_first_lost_answers_of_a_host_are_no_proof_of_its_death(2),
        lambda patch: patch.setattr(hosts, "_TIMES_ASKED", 2),
    ),
    (
        "patience of the unheard",
        regressions.test_who_is_not_heard_waits_with_a_gap_until_it_can_ask,
        _gaps_wait_for_nobody,
    ),
    ("bound of answers", one_member_is_answered_up_to_a_bound, _hear_everything),
    (
        "rate of answers",
        lambda: bounded.check_answers_have_a_rate(Fingerprints(0, -1, b"")),
        lambda patch: patch.setitem(allowance._RATES, allowance._ANSWERED, (65_536, 1_048_576)),
    ),
    (
        "what was delivered is forgotten",
        lambda: hostile.test_law_what_was_delivered_is_not_delivered_again_after_a_restart(1),
        lambda patch: patch.setattr(EventJournal, "restore", lambda *_: None),
    ),
    (
        "answers paid once for all ways",
        lambda: bounded.test_law_who_names_many_ways_pays_for_all_of_them(Fingerprints(0, -1, b""), 5),
        lambda patch: patch.setattr(allowance, "copies", lambda _: 1),
    ),
    (
        "bound of refused statements",
        bounded.test_statements_that_bring_nothing_are_checked_up_to_a_bound,
        _hear_everything,
    ),
    ("a silent way", a_silent_way_is_replaced, lambda patch: patch.setattr(Prober, "ping", _ping_the_same_way)),
    (
        "anybody's way",
        ways.test_a_stranger_s_source_is_never_taken_for_a_way,
        lambda patch: patch.setattr(swim_module, "is_way", lambda *_: True),
    ),
    (
        "refusals of an idle way",
        ways.test_a_refusal_on_a_way_that_is_not_used_says_nothing_of_the_member,
        lambda patch: patch.setattr(HostEvidence, "on_refused", _refused_on_any_way),
    ),
    (
        "word of a move",
        ways.test_a_node_that_moves_is_found_where_it_went,
        lambda patch: patch.setattr(OwnRecord, "move", _move_in_silence),
    ),
]


class _AnyKey(dict):
    """A role that any fleet's enrol key satisfies."""

    @classmethod
    def role(cls):
        from swarmd_protocols.crypto import ModelCrypto
        from swarmd_protocols.trust.envelopes import key_id
        from swarmd_protocols.trust.identity import dev_role_seeds

        keys = {}
        for secret in (SECRET, b"some other fleet's secret"):
            for role in ("enrol", "root"):
                public = ModelCrypto().public_key(dev_role_seeds(secret, role)[0])
                keys[key_id(public)] = public
        return keys, 1


@pytest.mark.parametrize("checker", sorted({checker for _, checker, _ in MUTANTS}, key=lambda item: item.__name__))
def test_the_unbroken_code_passes(checker):
    checker()


@pytest.mark.parametrize(("name", "checker", "mutate"), MUTANTS, ids=[name for name, _, _ in MUTANTS])
def test_the_mutant_is_caught(name, checker, mutate, monkeypatch):
    assert_found(mutate, checker, monkeypatch)
