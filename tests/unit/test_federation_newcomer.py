"""What somebody who sets a region up gets wrong is said, at the gateway and at the region, with what to do."""

import asyncio
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd.api.metrics import Metrics
from swarmd.brain.above import Above
from swarmd.cli.main import main
from swarmd.errors import ConfigError, DaemonError
from swarmd.events.kinds import ALERTS
from swarmd.federation.gateway import ALERT, SILENT_NS, Gateway
from swarmd.federation.history import files_of
from swarmd.federation.outbox import FILE_NAME, Done, Outbox, Waiting
from swarmd.federation.publisher import Publisher, _Said
from swarmd.federation.region import NAMED_MAX
from swarmd.federation.rows import ObjectQuery
from swarmd.federation.sending import Sending
from swarmd.federation.settings import SwarmEntry, add_pin, make_region
from swarmd.federation.uplink import Place
from swarmd_protocols.federation.wire import Down, Known, Pair, RowKind, Way
from swarmd_protocols.ids import NodeId
from tests.support.federation_daemon import MeshDaemon
from tests.support.federation_world import CRYPTO, REGION_SEED, make_world
from tests.support.paths import ROOT
from tests.support.state_mesh import Mesh
from tests.unit.test_federation_claims import gateway


class Path0:
    """One path, connected or not."""

    name = "mqtt://broker"

    def __init__(self) -> None:
        self.connected, self.problem = True, ""

    def send(self, place: Place, frame: bytes) -> bool:
        return self.connected

    async def run(self) -> None:
        raise AssertionError("nothing runs here")


def silent(folder: Path) -> tuple[Gateway, MeshDaemon, Path0, Outbox]:
    daemon, uplink = MeshDaemon(Mesh(1), 0, "gw0"), Path0()
    one, outbox = gateway(daemon), Outbox(folder / FILE_NAME, 1 << 20, 1e9)
    place = Place(bytes(16), Way.UP, daemon.identity.node)
    one._sending = Sending(outbox, one._pair, place, 1, lambda down, done: None)
    one._sending.uplinks = [uplink]
    return one, daemon, uplink, outbox


def test_a_region_that_never_answers_is_an_alert_with_its_remedy_until_it_does(tmp_path: Path) -> None:
    one, daemon, uplink, outbox = silent(tmp_path)
    one._sending.pump(10**9)
    one._tell_silence(10**9 + SILENT_NS - 1)
    assert daemon.commands == []
    one._tell_silence(10**9 + SILENT_NS)
    one._tell_silence(10**9 + SILENT_NS + 1)
    uplink.connected, uplink.problem = False, "broker mqtt://broker: Connection refused"
    one._tell_silence(10**9 + SILENT_NS + 2)
    one._sending.flow.answered((), 0, 0, 10**9 + SILENT_NS + 3)
    one._tell_silence(10**9 + SILENT_NS + 4)
    assert [verb for verb, _ in daemon.commands] == ["alert"] * 3
    texts = [str(arguments["text"]) for _, arguments in daemon.commands]
    assert "nobody there answers for the swarm" in texts[0]
    assert "mqtt://broker" in texts[0]
    assert texts[1:] == ["broker mqtt://broker: Connection refused", ""]
    assert {arguments["code"] for _, arguments in daemon.commands} == {ALERT}
    assert "swarmd region pin" in ALERTS[ALERT].remedy
    outbox.close()


def test_what_waits_and_each_path_are_metrics_also_after_a_second_start(tmp_path: Path) -> None:
    one, _, uplink, outbox = silent(tmp_path)
    parts: Any = SimpleNamespace(metrics=Metrics())
    above = Above(parts)
    assert "swarmd_gateway" not in parts.metrics.render().decode()
    rest = {
        "_answering": SimpleNamespace(counts={"questions": 2, "unanswered": 1}),
        "_publisher": SimpleNamespace(shares={1, 2}, unproven=0),
        "_descent": SimpleNamespace(fetched=0),
        "_outbox": outbox,
    }
    for name, value in rest.items():
        setattr(one, name, value)
    outbox.put([Waiting(RowKind.OBJECT, b"k", b"body")], 1)
    one.refused = 3
    for _ in range(2):
        above.show(one.status)
    uplink.connected, uplink.problem = False, "broker mqtt://broker: Connection refused"
    rows = [line for line in parts.metrics.render().decode().splitlines() if line.startswith("swarmd_gateway")]
    assert len(rows) == len(set(rows)), "two starts say everything twice"
    for row in (
        'swarmd_gateway_connected{path="mqtt://broker"} 0',
        "swarmd_gateway_waiting_rows 1",
        f"swarmd_gateway_waiting_bytes {outbox.size_bytes}",
        f"swarmd_gateway_outbox_bytes {one._settings.outbox_bytes}",
        "swarmd_gateway_works 0",
        "swarmd_gateway_shares 2",
        'swarmd_gateway_total{what="refused_rows"} 3',
        'swarmd_gateway_total{what="dropped_rows"} 0',
        'swarmd_gateway_total{what="acknowledged_rows"} 0',
        'swarmd_gateway_total{what="questions_unanswered"} 1',
    ):
        assert row in rows
    assert one.status()["paths"] == {"mqtt://broker": "broker mqtt://broker: Connection refused"}
    watched = "".join((ROOT / "monitoring" / name).read_text() for name in ("grafana-swarmd.json", "swarmd.rules.yml"))
    asked = set(re.findall(r"swarmd_gateway[a-z_]*", watched))
    assert asked <= {row.split("{")[0].split(" ")[0] for row in rows}, "a panel or a rule that stays empty for ever"
    outbox.close()


def test_a_frame_that_is_refused_is_one_line_and_a_full_disk_forgets_neither_it_nor_what_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, daemon, _, outbox = silent(tmp_path)
    one._publisher = publisher = Publisher(daemon, outbox, CRYPTO, 1.0, 1.0)
    one._outbox = outbox
    said: list[str] = []
    monkeypatch.setattr(daemon, "note_problem", lambda where, text: said.append(text))
    publisher._said = {b"refused": _Said(0.0, 1, b"", ()), b"less": _Said(0.0, 3, b"own", ())}

    def full(news: object) -> None:
        raise DaemonError("the outbox takes nothing")

    monkeypatch.setattr(outbox, "learn", full)
    kind = RowKind.OBJECT
    done = [Done(5, kind, b"refused", b""), Done(6, kind, b"other", b""), Done(7, kind, b"less", bytes(7) + b"\x03own")]
    known = Known(b"less", 9, b"theirs")
    with pytest.raises(DaemonError):
        one._on_down(Down(outbox.epoch, refused=((5, "why"), (6, "why"), (8, "gone")), known=(known,)), done)
    assert said == ["the region refuses a row: why, and 1 more of its frame"]
    assert one.refused == 2, "a row that had left counts twice"
    assert publisher.known[b"less"] == (9, b"theirs")
    assert b"refused" not in publisher._said
    outbox.close()


async def test_a_missing_role_stands_as_an_alert_too() -> None:
    daemon = MeshDaemon(Mesh(1), 0)
    one = gateway(daemon)
    with pytest.raises(ConfigError, match="role gateway"):
        await one.run(daemon)
    [(verb, arguments)] = daemon.commands
    assert (verb, arguments["code"]) == ("alert", ALERT)
    assert "swarmd keys enrol" in str(arguments["text"])


def test_a_region_names_a_swarm_that_is_not_pinned_once_and_not_without_end(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    for _ in range(2):
        for number in range(NAMED_MAX + 4):
            world.region.on_frame(0, Place(bytes([number] * 16), Way.UP, NodeId(bytes(16))), b"anything")
    assert len(world.said) == NAMED_MAX
    assert bytes(16).hex() in world.said[0]
    assert "swarmd region pin" in world.said[0]
    world.close()


def test_a_region_says_that_a_gateway_has_the_key_of_another_region(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), swarms=1, gateways=1)
    [sender] = world.swarms[0].gateways
    sender.sending._pair = Pair(CRYPTO, sender.identity.seed, CRYPTO.public_key(b"S" * 32))
    for _ in range(4):
        world.pump(1_000)
        flying, world.flying = world.flying, []
        for frame in flying:
            world.deliver(frame)
    assert len(world.said) == 1
    assert "federation.region_key" in world.said[0]
    assert REGION_SEED not in repr(world.said).encode()
    world.close()


def test_a_later_root_is_no_pin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet, region = tmp_path / "fleet", tmp_path / "region"
    assert main(["keys", "root", str(fleet), "--name", "acme"]) == 0
    assert main(["keys", "role", str(fleet), "operator", "--need", "1", "--keys", "2"]) == 0
    make_region(region)
    later = fleet / "roots" / "0002.root"
    with pytest.raises(ConfigError, match=r"is root 2 of its fleet; give FLEET/roots/0001\.root"):
        add_pin(region, SwarmEntry("north", "farm"), later.read_bytes())
    key, out = str(fleet / "keys" / "operator-1.key"), str(tmp_path / "blue.agreement")
    words = ["--swarm", "amber", "--other", "blue", "--key", key, "--out", out]
    assert main(["fleet", "neighbour", "the-blue", "--root", str(later), *words]) == 1
    assert "is root 2 of its fleet; give the other fleet's roots/0001.root" in capsys.readouterr().err
    add_pin(region, SwarmEntry("north", "farm"), (fleet / "roots" / "0001.root").read_bytes())


def test_a_history_that_this_account_may_not_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", refused)
    with pytest.raises(DaemonError, match=r"past/objects cannot be read: Permission denied; let this account read it"):
        files_of(tmp_path / "past", ObjectQuery())


def test_an_export_without_news_does_not_say_that_the_place_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_region(tmp_path / "region")
    assert main(["region", "export", str(tmp_path / "region"), str(tmp_path / "past")]) == 0
    assert capsys.readouterr().out == "no word has come since the last export\n"


def test_a_gateway_that_cannot_start_is_an_alert_until_its_region_has_answered(tmp_path: Path) -> None:
    """Its outbox does not open, say: nobody reads its log, and the region is told nothing."""
    one, daemon, _, outbox = silent(tmp_path)
    outbox.close()
    (tmp_path / "no folder").write_bytes(b"")
    one._folder = lambda: tmp_path / "no folder"
    with pytest.raises((DaemonError, OSError)):
        asyncio.run(one.run(daemon))
    [(verb, arguments)] = daemon.commands
    assert (verb, arguments["code"]) == ("alert", ALERT)
    assert "no folder" in str(arguments["text"])
    one._tell_silence(10**9)
    assert len(daemon.commands) == 1, "it starts again, and nobody has answered yet"
    one._sending.flow.answered((), 0, 0, 10**9 + 1)
    one._tell_silence(10**9 + 2)
    assert daemon.commands[1:] == [("alert", {"code": ALERT, "text": ""})]
