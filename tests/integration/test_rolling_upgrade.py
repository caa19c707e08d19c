"""A rolling upgrade with real daemons: an older program's swarm, upgraded one device at a time while detections flow.

Which older program: `make test-upgrade FROM=v0.1.0` names a tag or a revision; without, it is the newest tag before
this revision that speaks this wire, and before the first tag the oldest revision that has this wire's golden vectors.
Both programs are wheels in environments of their own. Without the history of the tree (a shallow clone, an archive) the
tests are skipped and say so. Everything else that an upgrade meets is in `test_upgrade.py`.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import older
from tests.support.daemons import all_see, wait_for
from tests.support.paths import ROOT
from tests.support.rolling import Device, Feed, install, program_of, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NAMES = ("north", "east", "south", "west")
FLOWING = 5
"""Detections of each device that runs between two steps of the upgrade."""
CONFIG = """[node]
origin = [47.0, 8.0]

[mqtt]
enabled = false
host = "broker.example"

[pose]
share_s = 2.0
"""


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This tree's program, installed from its wheel."""
    return install(ROOT, tmp_path_factory.mktemp("current"))


def devices(folder: Path, program: Path, names: Sequence[str]) -> list[Device]:
    """A swarm's devices on loopback, each with its configuration and its folder, none started."""
    config = folder / "swarmd.toml"
    config.write_text(CONFIG)
    flags = ["--config", str(config), "--dev-fleet", str(folder / "fleet"), "--listen", "127.0.0.1:0"]
    return [Device(name, folder / name, program, [*flags, "--name", name]) for name in names]


def incarnations(at: Device) -> dict[str, int]:
    return {row["name"]: int(row["incarnation"]) for row in at.ask("members")["members"]}


def one_picture(swarm: Sequence[Device], wanted: set[int]) -> None:
    """Wait until every device shows what is wanted at the least, and all show the same."""
    wait_for(
        lambda: all(wanted <= set(device.rows()) for device in swarm),
        "every detection at every device",
        seen=lambda: {device.name: sorted(wanted - set(device.rows()))[:20] for device in swarm},
    )
    wait_for(
        lambda: len({device.status()["digest"] for device in swarm}) == 1,
        "one picture",
        seen=lambda: [device.status()["digest"] for device in swarm],
    )


def faults(rows: Sequence[int], taken: set[int], unsure: set[int]) -> list[str]:
    """What is wrong with the detections that a device shows, by their numbers."""
    seen = set(rows)
    return [
        *(f"{number} is lost" for number in sorted(taken - seen)),
        *(f"{number} is there {rows.count(number)} times" for number in sorted(seen) if rows.count(number) > 1),
        *(f"nobody saw {number}" for number in sorted(seen - taken - unsure)),
    ]


def nothing_was_lost(swarm: Sequence[Device], feed: Feed) -> None:
    """What a device said it has taken is at every device, once; nothing is there that nobody saw."""
    assert not feed.refused
    one_picture(swarm, set(feed.taken))
    for device in swarm:
        rows = device.rows()
        assert faults(rows, set(feed.taken), feed.unsure) == [], device.name
        assert len(device.ask("objects")["objects"]) == len(rows), "each is an object of its own"


def test_the_judge_finds_what_was_planted() -> None:
    assert faults([1, 2, 3], {1, 2}, {3}) == []
    assert faults([1, 2], {1, 2}, {3}) == []
    assert faults([1, 1, 4], {1, 2}, {3}) == ["2 is lost", "1 is there 2 times", "nobody saw 4"]


def nobody_was_suspected_for_good(swarm: Sequence[Device]) -> None:
    for device in swarm:
        told = [row for row in device.ask("events", limit=500)["events"] if row["kind"] in ("failed", "unreachable")]
        assert not told, f"{device.name}: {told}"
        codes = {row["code"] for row in device.status()["alerts"]}
        assert not codes & {"wire-version", "identity-cloned", "not-certified"}, f"{device.name}: {codes}"
        assert "journal_corrupt" not in device.log()


def test_a_swarm_is_upgraded_one_device_at_a_time_and_no_detection_is_lost(current: Path, tmp_path: Path) -> None:
    revision = older.to_roll_from()
    assert older.wire_of(revision) == older.wire_of("HEAD"), (
        f"{revision[:12]} speaks wire version {older.wire_of(revision)}, this tree {older.wire_of('HEAD')}: they are "
        "two swarms, so there is no rolling upgrade from it (docs/upgrades.md, 'A fleet, wire raised')"
    )
    swarm = devices(tmp_path, program_of(revision, tmp_path), NAMES)
    everybody = dict.fromkeys(NAMES, "alive")
    feed = Feed(swarm)
    try:
        first, *others = [swarm[0].start(), *swarm[1:]]
        for device in others:
            device.start([first.address])
        all_see(swarm, everybody)
        nodes = {device.name: device.status()["node_id"] for device in swarm}
        born = incarnations(first)
        with feed:
            for device in random.Random(19).sample(swarm, len(swarm)):
                others = [one for one in swarm if one is not device]
                _let_flow(feed, swarm)
                feed.say(device)  # The last thing that it sees is as safe as any other.
                device.stop()
                all_see(others, everybody | {device.name: "left"})
                device.upgrade(current)
                run(current, "check-config", "-c", tmp_path / "swarmd.toml", cwd=tmp_path)
                device.start([others[0].address])
                all_see(swarm, everybody)
                device.ask("event", name="rolled", payload=device.name)
                for one in others:
                    _hears(one, f'"{device.name}"')
            _let_flow(feed, swarm)
        nothing_was_lost(swarm, feed)
        assert {device.name: device.status()["node_id"] for device in swarm} == nodes
        assert all(incarnations(first)[name] > born[name] for name in NAMES)
        nobody_was_suspected_for_good(swarm)
        assert (tmp_path / "swarmd.toml").read_text() == CONFIG
        print(f"from {revision[:12]}: {len(feed.taken)} detections, {len(feed.unsure)} asked of a device that ended")
    finally:
        for device in swarm:
            device.stop()


def _hears(device: Device, payload: str) -> None:
    """Wait until a device has told its subscribers of a user event."""

    def told() -> bool:
        return any('"rolled"' in line and payload in line for line in device.out.read_text().splitlines())

    wait_for(told, f"{device.name} to hear the user event {payload}", seen=lambda: device.out.read_text()[-500:])


def _let_flow(feed: Feed, swarm: Sequence[Device]) -> None:
    """Wait until each device has taken some more."""
    before = {device.name: feed.by(device) for device in swarm}
    wait_for(
        lambda: all(feed.by(device) >= before[device.name] + FLOWING for device in swarm),
        "detections to flow",
        seen=lambda: (before, [feed.by(device) for device in swarm]),
    )


def test_a_swarm_of_another_wire_is_upgraded_on_the_ground_from_its_journals(current: Path, tmp_path: Path) -> None:
    """All are stopped, all are upgraded, all go on: each with its own facts, and together with all of them."""
    revision = older.of_another_wire()
    swarm = devices(tmp_path, program_of(revision, tmp_path), NAMES[:2])
    everybody = dict.fromkeys(NAMES[:2], "alive")
    feed = Feed(swarm)
    try:
        swarm[0].start()
        swarm[1].start([swarm[0].address])
        all_see(swarm, everybody)
        with feed:
            _let_flow(feed, swarm)
        nodes = {device.name: device.status()["node_id"] for device in swarm}
        born = incarnations(swarm[0])
        for device in swarm:
            device.stop()
            device.upgrade(current)
        swarm[0].start()
        swarm[1].start([swarm[0].address])
        all_see(swarm, everybody)
        nothing_was_lost(swarm, feed)
        assert {device.name: device.status()["node_id"] for device in swarm} == nodes
        assert all(incarnations(swarm[0])[name] > born[name] for name in everybody)
        nobody_was_suspected_for_good(swarm)
    finally:
        for device in swarm:
            device.stop()
