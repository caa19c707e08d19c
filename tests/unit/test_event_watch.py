"""What the brain's notices become, and which alerts stand by what its parts show."""

import io
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import pytest

from swarmd.api.bus import Bus
from swarmd.brain import event_watch as watch_module
from swarmd.brain.event_watch import CLONED_S, EventWatch
from swarmd.brain.other_wires import SILENT_S, SOURCES_MAX, OtherWires
from swarmd.events.alerts import Alerts
from swarmd.events.kinds import Level
from swarmd.events.record import EventRecord
from swarmd.logs import Logger
from swarmd_protocols.channel.channel import WIRE_VERSION
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.effects import (
    Alarm,
    DatagramReceived,
    MemberChanged,
    MemberState,
    Rejected,
    SendDatagram,
    Started,
    StateChanged,
    UserEventDelivered,
)
from swarmd_protocols.ids import NodeId
from swarmd_protocols.node import Node, NodeConfig
from swarmd_protocols.releases.agent import Note
from swarmd_protocols.releases.requests import RolloutChanged
from swarmd_protocols.state.clock import EPOCH_2020_NS
from swarmd_protocols.state.observations import ObjectChanged, ReviewView
from swarmd_protocols.trust.identity import make_dev_identity
from swarmd_protocols.trust.requests import TrustChanged
from tests.support.swim_net import Net

ME, PEER, OTHER = (NodeId(bytes([number]) * 16) for number in (1, 2, 3))
ALIVE, SUSPECT, DEGRADED, FAILED, LEFT, AWAY, UNREACHABLE = (
    MemberState.ALIVE,
    MemberState.SUSPECT,
    MemberState.DEGRADED,
    MemberState.FAILED,
    MemberState.LEFT,
    MemberState.AWAY,
    MemberState.UNREACHABLE,
)


class Recorded:
    def __init__(self):
        self.rows = []
        self.causes = []
        self.accounts = []

    def record(self, kind, subject="", reason="", evidence="", cause=None, account=""):
        self.accounts.append(account)
        self.rows.append((kind, subject, reason, evidence))
        self.causes.append(cause)

    def learn(self, origin, rows):
        self.rows.append(("learn", origin, rows, ""))

    def tick(self):
        pass


class Camera:
    """Ten frames a second, until the test says how many there are."""

    def __init__(self, brain):
        self._brain = brain
        self.stuck_at = None

    @property
    def frames(self):
        return int(self._brain.now_s * 10) if self.stuck_at is None else self.stuck_at


class Brain:
    """The parts that a watch looks at, as the test sets them."""

    def __init__(self, monkeypatch):
        self.now_s = 1_000.0
        fake = SimpleNamespace(
            monotonic=lambda: self.now_s,
            monotonic_ns=lambda: int(self.now_s * 1e9),
            time_ns=lambda: int(self.now_s * 1e9) + EPOCH_2020_NS + self.wall_off_ns,
        )
        monkeypatch.setattr(watch_module, "time", fake)
        self.wall_off_ns = 0
        self.why_out = ""
        self.states = {"me": ALIVE, "peer": ALIVE}
        self.members = [SimpleNamespace(node=PEER, name="peer", address="10.0.0.5:7946")]
        self.clock = SimpleNamespace(offset_ns=0, synced=True)
        model = SimpleNamespace(revoked={}, halted={b"r": SimpleNamespace(reason="it sees ghosts")})
        protocol = SimpleNamespace(
            view=SimpleNamespace(models={"eye": model}),
            release=lambda name, digest: object(),
            standing=lambda name, digest, release: SimpleNamespace(fails=2),
        )
        self.journal = SimpleNamespace(degraded=False)
        self.reach = SimpleNamespace(problem="")
        self.eye = SimpleNamespace(state="running", problem="", telemetry=Camera(self))
        self.seeds = {}
        self.transport = SimpleNamespace(local_address="10.0.0.1:7946", reach=self.reach)
        self.parts = SimpleNamespace(
            bus=Bus(Logger("n", stream=io.StringIO())),
            identity=SimpleNamespace(node=ME, name="me", swarm="farm"),
            node=SimpleNamespace(
                summary=lambda: SimpleNamespace(members=self.states),
                members=lambda: self.members,
            ),
            replica=SimpleNamespace(clock=self.clock),
            journal=self.journal,
            eye=self.eye,
            transport=self.transport,
            seeds=self.seeds,
            releases=SimpleNamespace(config=SimpleNamespace(model="eye"), protocol=protocol),
        )
        self.trust = SimpleNamespace(
            root=SimpleNamespace(version=1), group_keys={1: b""}, revocations=[], why_out=lambda node: self.why_out
        )
        self.recorded = Recorded()
        self.alerts = Alerts(lambda alert, is_raised: None)
        self.watch = EventWatch(self.parts, self.recorded, self.alerts, self.trust)

    def say(self, notice):
        self.parts.bus.publish(notice)
        return self.recorded.rows[-1] if self.recorded.rows else None

    def standing(self):
        self.watch.look()
        return [alert.code for alert in self.alerts.standing()]


@pytest.fixture
def brain(monkeypatch):
    return Brain(monkeypatch)


@pytest.mark.parametrize(
    ("states", "kinds"),
    [
        ([None, ALIVE, SUSPECT, FAILED, ALIVE], ["joined", "failed", "returned"]),
        ([None, ALIVE, SUSPECT, UNREACHABLE, ALIVE], ["joined", "unreachable", "returned"]),
        ([None, ALIVE, DEGRADED, ALIVE], ["joined", "link-trouble", "link-restored"]),
        ([None, ALIVE, DEGRADED, SUSPECT, ALIVE], ["joined", "link-trouble", "link-restored"]),
        ([None, ALIVE, LEFT, ALIVE, AWAY, ALIVE], ["joined", "left", "returned", "away", "returned"]),
        ([None, ALIVE, SUSPECT, ALIVE, ALIVE], ["joined"]),
        ([None, FAILED, FAILED, ALIVE], ["returned"]),
        ([None, DEGRADED, FAILED, LEFT], ["joined", "failed", "left"]),
    ],
)
def test_the_life_of_a_member(brain, states, kinds):
    for old, new in pairwise(states):
        brain.say(MemberChanged(PEER, "peer", old, new, "because"))
    assert [row[0] for row in brain.recorded.rows] == kinds
    assert all(row[1:3] == ("peer", "because") for row in brain.recorded.rows)
    assert set(brain.recorded.causes) == {PEER}, "the member answers for what it causes"


def test_what_others_cause_is_theirs_and_alarms_are_few(brain):
    assert brain.say(UserEventDelivered(PEER, "peer", "land", b"now\xff"))[:3] == ("user-event", "land", "said by peer")
    assert brain.recorded.causes == [PEER]
    for number in range(100):
        brain.say(Alarm("state-flood", f"{number}"))
    brain.say(Alarm("send-failed", "no route"))
    assert [row[1] for row in brain.recorded.rows[1:]] == ["state-flood"] * watch_module.ALARMS_BURST + ["send-failed"]


def test_releases_are_told_once_in_all_lives(brain):
    changed = StateChanged("releases", RolloutChanged("eye", b"r", 3, "halted", 0))
    assert brain.say(changed)[:3] == ("release-halted", "eye 3", "an officer: it sees ghosts")
    assert brain.standing() == ["release-halted"]
    brain.say(changed)
    assert len(brain.recorded.rows) == 1
    brain.say(StateChanged("releases", RolloutChanged("eye", b"q", 4, "halted", 0)))
    assert brain.recorded.rows[-1][2] == "2 of its canaries failed"
    brain.say(StateChanged("releases", RolloutChanged("eye", b"r", 3, "revoked", 0)))
    assert [alert.subject for alert in brain.alerts.standing()] == ["eye 4"]
    brain.say(StateChanged("releases", RolloutChanged("eye", b"n", 5, "promoted", 0)))
    assert brain.standing() == [], "a newer one runs everywhere"
    brain.say(StateChanged("releases", RolloutChanged("eye", b"o", 4, "halted", 0)))
    assert brain.standing() == [], "and what was halted before it, told later, is over too"
    brain.recorded.rows.clear()
    brain.watch.know_past([EventRecord(0, "me", "", 1, 1, "release-promoted", "eye 2", "", "release 70")])
    brain.say(StateChanged("releases", RolloutChanged("eye", b"p", 2, "promoted", 0)))
    assert brain.recorded.rows == []


def said(number, verdict="confirm", text="", operator="alice"):
    return ReviewView(operator, "0a0b0c0d", verdict, text, "hot-spot", 1_000, 1, bytes([number]) * 16, b"")


def test_a_review_is_told_once_whichever_object_bears_it(brain):
    def bears(kind, object_id, *reviews):
        brain.say(StateChanged("state", ObjectChanged(kind, SimpleNamespace(object_id=object_id, reviews=reviews), "")))

    bears("new", "a1")
    bears("update", "a1", said(1, "relabel", "crack"))
    bears("update", "a1", said(1, "relabel", "crack"), said(2, "reject", operator="bob"))
    bears("superseded", "a1", said(3))
    bears("update", "b2", said(1, "relabel", "crack"), said(2, "reject", operator="bob"))
    expected = [
        ("reviewed", "a1", "alice: relabel crack", f"review {'01' * 8} by key 0a0b0c0d"),
        ("reviewed", "a1", "bob: reject", f"review {'02' * 8} by key 0a0b0c0d"),
    ]
    assert brain.recorded.rows == expected
    assert brain.recorded.accounts == ["reviews"] * 2, "of a flood of them most are left out"
    brain.recorded.rows.clear()
    brain.watch.know_past([EventRecord(0, "me", "", 1, 1, "reviewed", "a1", "", f"review {'09' * 8} by key 0a0b0c0d")])
    bears("update", "a1", said(9))
    assert brain.recorded.rows == [], "an earlier life told it"
    for number in range(watch_module.REVIEWS_MAX + 9):
        one = ReviewView("x", "0a0b0c0d", "note", "", "", 1, 1, number.to_bytes(16, "little"), b"")
        bears("update", "a1", one)
    assert len(brain.watch._reviews) == watch_module.REVIEWS_MAX


def test_what_the_agent_did_here(brain):
    brain.watch.on_release_note(Note("verdict PASS", b"r", "fine"), 3)
    brain.watch.on_release_note(Note("went_back", b"r", "it is halted"), 3)
    brain.watch.on_release_note(Note("order_dropped", b"", "64 wait"), 0)
    assert [row[:3] for row in brain.recorded.rows] == [
        ("release-trial", "eye 3", "verdict PASS"),
        ("release-rolled-back", "eye 3", "it is halted"),
    ]


def test_trust_is_told_once_with_the_officers_reason(brain):
    brain.say(StateChanged("node", TrustChanged("root")))
    assert brain.recorded.rows == [], "nothing is new"
    brain.trust.root.version = 2
    brain.trust.group_keys[5] = b""
    brain.trust.revocations.append(SimpleNamespace(counter=4, nodes=(bytes(PEER), bytes(OTHER)), reason="stolen"))
    for _ in range(2):
        brain.say(StateChanged("node", TrustChanged("revoke")))
    assert [row[:3] for row in brain.recorded.rows] == [
        ("root-replaced", "root 2", "officers signed a new root"),
        ("revoked", f"peer, {OTHER.hex()}", "stolen"),
        ("group-key", "group key 5", "the swarm seals with a new key"),
    ]


def test_who_was_shut_out_is_named_though_it_is_off_the_list(brain):
    brain.say(MemberChanged(PEER, "drone-3", ALIVE, FAILED, "revoked: stolen"))
    brain.members = []
    brain.trust.revocations.append(SimpleNamespace(counter=4, nodes=(bytes(PEER),), reason="stolen"))
    brain.say(StateChanged("node", TrustChanged("revoke")))
    assert brain.recorded.rows[-1][:3] == ("revoked", "drone-3", "stolen")
    for number in range(watch_module.NAMES_MAX + 9):
        brain.say(MemberChanged(NodeId(number.to_bytes(16, "big")), "x", ALIVE, SUSPECT, ""))
    assert len(brain.watch._names) == watch_module.NAMES_MAX


def test_commands_say_who_and_why_not_and_leave_out_what_is_long(brain):
    brain.watch.on_command("trust", {"kind": "revoke", "statement": "00" * 900}, "root (process 7)", "")
    brain.watch.on_command("forget", {"name": "x"}, "user 1000", "x is alive")
    assert brain.recorded.rows == [
        ("command", "trust", "by root (process 7)", "kind=revoke"),
        ("command", "forget", "by user 1000; refused: x is alive", "name=x"),
    ]


def test_what_is_refused_without_end_takes_rows_of_its_own(brain):
    brain.watch.on_command("leave", {}, "operator bob from 10.0.0.9 (certificate 00)", "bob may only look")
    brain.watch.on_command("leave", {}, "operator alice from 10.0.0.8 (certificate 11)", "")
    assert brain.recorded.accounts == ["refused", ""]


def test_every_condition_raises_its_alert_and_clears_it(brain):
    assert brain.standing() == []
    brain.journal.degraded = True
    brain.eye.state, brain.eye.problem = "failed", "no camera"
    brain.reach.problem = "peers are told 127.0.0.1"
    brain.why_out = "revoked: stolen"
    brain.say(Alarm("identity-twice", "stop one"))
    brain.wall_off_ns = 3_600 * 10**9
    assert sorted(brain.standing()) == [
        "clock-wrong",
        "eye-given-up",
        "identity-cloned",
        "journal-failing",
        "loopback-advertised",
        "revoked",
    ]
    texts = {alert.code: alert.text for alert in brain.alerts.standing()}
    assert "+3600.0 s" in texts["clock-wrong"]
    assert "revoked: stolen" in texts["revoked"]
    assert "no camera" in texts["eye-given-up"]
    brain.journal.degraded, brain.eye.state, brain.reach.problem, brain.why_out = False, "running", "", ""
    brain.wall_off_ns = 0
    assert brain.standing() == ["identity-cloned"], "until nobody has contradicted it for a while"
    brain.now_s += CLONED_S + 1
    assert brain.standing() == []


def test_junk_under_unknown_keys_is_no_alert_while_the_swarm_is_heard(brain):
    unknown = Rejected("10.0.0.9:1", "first contact under a group key that this node does not hold")
    brain.say(unknown)
    assert brain.standing() == []
    del brain.states["peer"]
    assert brain.standing() == ["group-key-unknown"]
    brain.now_s += watch_module.UNKNOWN_KEY_S + 1
    assert brain.standing() == []


def test_who_calls_with_another_fleets_key_is_an_alert_of_who_is_alone(brain):
    """Fleets count their group keys alike: the first of each is key 1."""
    del brain.states["peer"]
    crypto = ModelCrypto()
    identity = make_dev_identity(b"another fleet for tests", "test", "n001", crypto)
    config = NodeConfig(seeds=("10.0.0.1:7946",), version="1", capability="eye")
    effects = Node(identity, config, crypto, Random(1), {}, [], "10.0.0.9:1").handle(Started(), 10**10)
    frames = [("10.0.0.9:1", effect.data) for effect in effects if isinstance(effect, SendDatagram)]
    assert frames, "it greets at once"
    refused_by_a_node(frames, brain)
    assert brain.standing() == ["group-key-unknown"]


def test_a_join_that_nobody_answers_stands_until_a_member_is_reached(brain):
    brain.seeds |= {"drone-1:7946": "10.0.0.9:7946", "nowhere:7946": "", "me:7946": "10.0.0.1:7946"}
    brain.watch = EventWatch(brain.parts, brain.recorded, brain.alerts, brain.trust)
    del brain.states["peer"]
    assert brain.standing() == [], "there was no time to"
    brain.now_s += watch_module.JOIN_S
    assert brain.standing() == ["join-unanswered"]
    (alert,) = brain.alerts.standing()
    assert (alert.text, alert.level) == ("nobody answers at drone-1:7946, nowhere:7946", Level.WARNING)
    brain.states["peer"] = ALIVE
    assert brain.standing() == []


def test_who_waits_to_be_joined_waits_for_nobody(brain):
    del brain.states["peer"]
    brain.seeds["me:7946"] = "10.0.0.1:7946"
    brain.watch = EventWatch(brain.parts, brain.recorded, brain.alerts, brain.trust)
    brain.now_s += 3_600
    assert brain.standing() == []
    brain.watch.on_command("join", {"address": "10.0.0.7:7946"}, "root", "it has left")
    brain.now_s += 3_600
    assert brain.standing() == [], "what was refused"
    brain.watch.on_command("join", {"address": "10.0.0.7:7946"}, "root", "")
    assert brain.standing() == []
    brain.now_s += watch_module.JOIN_S
    assert brain.standing() == ["join-unanswered"]
    for number in range(99):
        brain.watch.on_command("join", {"address": f"10.0.1.{number}:7946"}, "root", "")
    assert len(brain.watch._joins) == watch_module.JOINS_MAX


def test_a_source_that_gives_no_frames_is_an_alert_while_the_eye_runs(brain):
    brain.eye.telemetry.stuck_at = 0
    brain.standing()
    brain.now_s += watch_module.SOURCE_SILENT_S - 1
    assert brain.standing() == []
    brain.eye.problem = "camera /dev/video9 cannot be opened"
    brain.now_s += 1
    assert brain.standing() == ["source-silent"]
    assert brain.alerts.standing()[0].text == "camera /dev/video9 cannot be opened"
    brain.eye.telemetry.stuck_at = 1
    assert brain.standing() == []
    for _ in range(99):
        brain.now_s += 1
        brain.eye.telemetry.stuck_at += 1
        assert brain.standing() == []
    brain.now_s += watch_module.SOURCE_SILENT_S
    assert brain.standing() == ["source-silent"], "also where it gave frames once"
    for state in ("finished", "restarting", "starting", "failed"):
        brain.eye.state = state
        assert "source-silent" not in brain.standing()
        brain.now_s += 3_600
        assert "source-silent" not in brain.standing()


def refused_by_a_node(frames, brain):
    """Frames from an address reach a node; what it refuses reaches the watch."""
    net = Net(1)
    net.run(3)
    for source, frame in frames:
        net.run(0.2)
        for effect in net.hosts[0].node.handle(DatagramReceived(source, frame), net.now):
            if isinstance(effect, Rejected | Alarm):
                brain.say(effect)


def test_a_node_of_another_wire_is_named_until_it_is_silent(brain):
    brain.members = [
        SimpleNamespace(node=PEER, name="drone-2", address="[fe80::2]:7946+10.0.0.2:7946"),
        SimpleNamespace(node=OTHER, name="drone-3", address="10.0.0.3:7946"),
    ]
    newer = bytes([WIRE_VERSION + 1 << 4 | 1]) + bytes(60)
    refused_by_a_node([("10.0.0.2:7946", newer)] * 2, brain)
    assert brain.standing() == [], "two frames may be anything"
    refused_by_a_node([("10.0.0.2:7946", newer), *[("10.0.0.9:1", newer)] * 3], brain)
    assert brain.standing() == ["wire-version"]
    (alert,) = brain.alerts.standing()
    assert alert.text == (
        f"drone-2 (10.0.0.2:7946) speaks wire version {WIRE_VERSION + 1}, 10.0.0.9:1 speaks wire version "
        f"{WIRE_VERSION + 1}; this node speaks {WIRE_VERSION}"
    )
    assert alert.level is Level.WARNING
    refused_by_a_node([("10.0.0.3:50000", bytes([1 << 4 | 1]) + bytes(60))] * 3, brain)
    assert "drone-3 (10.0.0.3:50000) speaks wire version 1" in brain.watch._wires.told(lambda: brain.members, 1e3)
    brain.now_s += SILENT_S + 1
    assert brain.standing() == []


def test_the_members_names_are_asked_for_seldom(brain):
    wires, asked = OtherWires(), []
    for _ in range(3):
        wires.refused("10.0.0.9:1", f"frame of wire version {WIRE_VERSION + 1}; this node speaks {WIRE_VERSION}", 0.0)
    for second in range(60):
        assert wires.told(lambda: asked.append(1) or [], float(second))
    assert len(asked) <= 7


def test_rubbish_names_nobody_and_floods_are_bounded(brain):
    rng = Random(7)
    rubbish = [("192.0.2.1:9", bytes([first]) + rng.randbytes(60)) for first in rng.sample(range(256), 64)]
    flood = [(f"192.0.2.{number}:9", bytes([WIRE_VERSION + 1 << 4 | 1]) + bytes(60)) for number in range(2, 64)]
    refused_by_a_node(rubbish + flood, brain)
    assert brain.standing() == []
    assert len(brain.watch._wires) <= SOURCES_MAX


def test_law_no_frame_of_an_outsider_makes_a_node_unhealthy(brain):
    """Also one that is alone, and whatever the frame's first bytes say it is."""
    net = Net(1)
    net.run(3)
    del brain.states["peer"]
    rng, heard = Random(3), 0
    for first in range(256):
        for length in (24, 60, 300, 1_100):
            net.run(0.1)  # Of strangers few are heard at once.
            frame = bytes([first]) + rng.randbytes(length)
            for effect in net.hosts[0].node.handle(DatagramReceived("192.0.2.1:9", frame), net.now):
                if isinstance(effect, Rejected | Alarm):
                    brain.say(effect)
                    heard += 1
    assert heard > 0
    assert brain.standing() == ["group-key-unknown"], "which may be what it was"
    assert [one.code for one in brain.alerts.standing() if one.level is Level.ERROR] == []


def test_a_clock_that_is_set_is_told_and_one_that_is_slewed_is_not(brain):
    brain.watch.tick()
    brain.clock.offset_ns += 500_000
    brain.watch.tick()
    assert brain.recorded.rows == []
    brain.clock.offset_ns -= 3_600 * 10**9
    brain.watch.tick()
    assert brain.recorded.rows[-1][2].startswith("by -3600.000 s")


def test_an_address_that_changes_is_told(brain):
    brain.watch.tick()
    brain.transport.local_address = "10.0.0.2:7946"
    brain.watch.tick()
    brain.watch.tick()
    assert brain.recorded.rows == [("address-changed", "10.0.0.2:7946", "it was 10.0.0.1:7946", "")]
