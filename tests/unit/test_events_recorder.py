"""What is written down, who answers for it, what the swarm is told, and what stands."""

from swarmd.events.alerts import STANDING_MAX, Alerts
from swarmd.events.kinds import ALERTS, KINDS, TOLD, Reach
from swarmd.events.recorder import CAUSED_BURST, CAUSED_PER_S, RANK_S, SAID_BURST, SAID_PER_S, Recorder
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.records import EVENTS_MAX, EventRow

NODES = [NodeId(bytes([index]) * 16) for index in range(8)]


class Kept:
    def __init__(self):
        self.rows = []

    def put(self, record, account=""):
        self.rows.append((record, account))


class World:
    """Some recorders of one swarm; what one says, the others learn at once."""

    def __init__(self, count=6):
        self.now_s = 0.0
        self.said = []
        self.heard = []
        self.stores = [Kept() for _ in range(count)]
        self.nodes = NODES[:count]
        self.all = [self.make(index) for index in range(count)]

    def make(self, index):
        def say(row):
            self.said.append((index, row))
            for other, recorder in enumerate(self.all):
                if other != index:
                    recorder.learn(self.nodes[index], [row])

        return Recorder(
            self.nodes[index],
            f"drone-{index}",
            7,
            self.stores[index],
            now_ms=lambda: 1_800_000_000_000,
            name_of=lambda node: f"drone-{node[0]}",
            members=lambda: self.nodes,
            publish=lambda record: self.heard.append((index, record.kind, record.origin)),
            say=say,
            clock_s=lambda: self.now_s,
        )

    def run(self, seconds):
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s += 1.0
            for recorder in self.all:
                recorder.tick()


def test_one_failure_is_said_by_two_and_known_to_all():
    world = World()
    for recorder in world.all[:5]:
        recorder.record("failed", "drone-5", "no answer", cause=NODES[5])
    world.run(120)
    assert len(world.said) == 2
    for store in world.stores[:5]:
        origins = {record.origin for record, _ in store.rows}
        assert len(origins) in (2, 3), "its own word, and those of the two"
        assert {record.kind for record, _ in store.rows} == {"failed"}


def test_a_quick_liar_is_never_the_only_witness():
    world = World()
    liar = world.all[0]
    liar._wait_s = lambda record: 0.0
    liar.record("failed", "drone-5", "it is dead, believe me")
    for recorder in world.all[1:5]:
        recorder.record("failed", "drone-5", "no answer", cause=NODES[5])
    world.run(120)
    authors = {index for index, _ in world.said}
    assert 0 in authors
    assert len(authors) >= 2


def test_when_the_first_two_are_gone_the_next_ones_speak():
    world = World()
    ranked = sorted(range(5), key=lambda index: world.all[index]._wait_s(_any_failed(world, index)))
    for index in ranked[2:]:
        world.all[index].record("failed", "drone-5", "no answer")
    world.run(4 * RANK_S + 10)
    assert len(world.said) == 2


def _any_failed(world, index):
    from swarmd.events.record import EventRecord

    return EventRecord(0, "", world.nodes[index].hex(), 7, 1, "failed", "drone-5", "", "")


def test_what_others_cause_is_charged_to_them_and_bounded():
    world = World()
    recorder, rows = world.all[0], world.stores[0].rows
    for _ in range(500):
        recorder.record("user-event", "spam", "said by drone-3", cause=NODES[3])
    assert len(rows) == CAUSED_BURST
    assert {account for _, account in rows} == {NODES[3].hex()}
    recorder.record("command", "leave", "by root")
    recorder.record("joined", "drone-4", cause=NODES[4])
    assert [account for _, account in rows[-2:]] == ["", NODES[4].hex()]
    world.now_s += 10 / CAUSED_PER_S
    for _ in range(500):
        recorder.record("user-event", "spam", cause=NODES[3])
    assert len(rows) == CAUSED_BURST + 2 + 10


def test_a_swarm_that_falls_apart_is_said_in_a_records_worth_a_second():
    """A thousand failures at once: no more is signed than others keep, and the newest of it."""
    world = World()
    recorder = world.all[0]
    recorder._wait_s = lambda record: 0.0
    for number in range(1_000):
        recorder.record("failed", f"drone-{number}", cause=NodeId(number.to_bytes(16, "big")))
    assert world.said == []
    recorder.tick()
    assert [row.subject for _, row in world.said] == [f"drone-{number}" for number in range(984, 1_000)]
    recorder.tick()
    assert len(world.said) == EVENTS_MAX


def test_what_flaps_is_written_down_within_bounds_and_seldom_said():
    world = World()
    recorder, rows = world.all[0], world.stores[0].rows
    recorder.record("release-rolled-back", "eye 3", "it is halted")
    for _ in range(2_000):
        recorder.record("alert-raised", "broker-lost", "no answer", account="alerts")
        recorder.record("alert-cleared", "broker-lost", "connected again", account="alerts")
        world.run(1)
    accounts = [account for _, account in rows]
    assert accounts.count("") == 1
    assert accounts.count("alerts") <= CAUSED_BURST + 2_000 * CAUSED_PER_S + 1
    said = [row.kind for _, row in world.said]
    assert said.count("release-rolled-back") == 1
    assert len(said) <= 1 + 2 * (SAID_BURST + 2_000 * SAID_PER_S + 1)


def test_what_others_say_is_bounded_of_known_kinds_and_harmless_text():
    world = World()
    recorder, rows = world.all[0], world.stores[0].rows
    for number in range(1, 1_000):
        recorder.learn(NODES[3], [EventRow(1, number, 5, "failed", "drone-1", "\x1b[31mred", "")])
    assert len(rows) == CAUSED_BURST
    assert {account for _, account in rows} == {NODES[3].hex()}
    assert rows[0][0].reason == "?[31mred"
    recorder.learn(
        NODES[4], [EventRow(1, 1, 5, "command", "leave", "by root", ""), EventRow(1, 2, 5, "new", "", "", "")]
    )
    assert len(rows) == CAUSED_BURST, "kinds that a node keeps to itself, or that nobody knows, are not taken"


def test_every_event_is_published_once_with_its_origin():
    world = World(2)
    world.all[0].record("alert-raised", "broker-lost", "no answer")
    world.run(1)
    assert world.heard == [(0, "alert-raised", "drone-0"), (1, "alert-raised", "drone-0")]


def test_the_tables_are_complete():
    assert {name for name, kind in KINDS.items() if kind.reach is not Reach.HERE} == TOLD
    for name, kind in KINDS.items():
        assert len(name) <= 32
        assert kind.means
        assert not kind.means.endswith(".")
    for alert in ALERTS.values():
        assert alert.remedy.endswith(".")
        assert not alert.means.endswith(".")


def test_an_alert_stands_once_until_it_is_cleared():
    changes = []
    alerts = Alerts(lambda alert, is_raised: changes.append((alert.code, alert.subject, is_raised)))
    alerts.set("broker-lost", "no answer from broker.example.")
    alerts.set("broker-lost", "it refused the password")
    alerts.set("no-fix", "2 satellites")
    alerts.set("no-fix", "")
    alerts.set("no-fix", "")
    assert changes == [("broker-lost", "", True), ("no-fix", "", True), ("no-fix", "", False)]
    (alert,) = alerts.standing()
    assert alert.sentence() == f"broker-lost: it refused the password. {ALERTS['broker-lost'].remedy}"
    alerts.set("revoked", "enrolled again")
    assert [one.code for one in alerts.standing()] == ["revoked", "broker-lost"], "the gravest first"


def test_standing_alerts_are_bounded():
    alerts = Alerts(lambda alert, is_raised: None)
    for number in range(3 * STANDING_MAX):
        alerts.set("release-halted", "halted", subject=f"model-{number}")
    assert len(alerts.standing()) == STANDING_MAX
