"""The lines of who lent what to whom: one chain, a write a minute at most, and a full disk stops nothing."""

import io
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from swarmd.brain import lending_audit
from swarmd.brain.lending import LendingLink
from swarmd.brain.lending_audit import PERIOD_S, LendingAudit
from swarmd.cli.main import main
from swarmd.logs import Logger
from swarmd.release.audit import AuditLog, verify_folder
from swarmd.release.errors import ReleaseError
from swarmd.worker import words
from swarmd_protocols.ids import NodeId
from swarmd_protocols.offload import ledger as ledgers
from swarmd_protocols.offload import requests
from swarmd_protocols.offload.ledger import LINES_EACH, NOBODY, Ledger, Line
from tests.support.mutants import assert_found

NODE, OTHER = NodeId(bytes(range(16))), NodeId(bytes(range(16, 32)))
DIGEST = bytes(range(32))


class World:
    """An audit with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 0.0
        self.out = io.StringIO()
        self.folder = folder / "lending"
        log = Logger("n", stream=self.out)
        self.audit = LendingAudit(self.folder, lambda node: f"drone-{node[0]}", log, lambda: self.now_s)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "audit.jsonl").read_text().splitlines()]


def test_lines_are_written_once_a_minute_and_the_chain_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world, ledger = World(tmp_path), Ledger()
    protocol: Any = SimpleNamespace(ledger=ledger, lenders=dict, offers=lambda now_ns: [])
    link = LendingLink(protocol, lambda name, request: None, lambda: None, lambda node: "", audit=world.audit)
    pulse = words.Pulse(0, {}, {})
    for _ in range(3):
        ledger.note("lent", NODE, DIGEST, 80_000, b"answer", took_ns=12_400_000)
    link.take(pulse)
    assert not world.folder.exists(), "not due"
    world.now_s = PERIOD_S
    link.take(pulse)
    ledger.note("ejected", OTHER)
    link.take(pulse)
    world.now_s += PERIOD_S / 2
    ledger.note("more", NOBODY)
    link.close()
    first, *rest = world.rows()
    assert {key: first[key] for key in ("what", "member", "name", "bundle", "count", "bytes", "took_ms")} == {
        "what": "lent", "member": NODE.hex(), "name": "drone-0", "bundle": DIGEST.hex(), "count": 3, "bytes": 240_000,
        "took_ms": 37,
    }  # fmt: skip
    assert len(first["proof"]) == 64
    assert [(row["what"], row.get("name")) for row in rest] == [("ejected", "drone-16"), ("more", None)]
    assert verify_folder(world.folder)[2] is None
    assert main(["audit", "verify", str(world.folder)]) == 0
    assert "3 lines, unbroken" in capsys.readouterr().out


def test_a_disk_that_takes_nothing_is_told_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: AuditLog, entries: object) -> bool:
        raise ReleaseError("the disk is full")

    monkeypatch.setattr(AuditLog, "add_all", refuse)
    world, ledger = World(tmp_path), Ledger()
    ledger.note("granted", NODE, DIGEST)
    world.audit.close(ledger.take())
    assert "the disk is full" in world.out.getvalue()


def test_nothing_to_say_makes_no_file(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.audit.close()
    assert not world.folder.exists()


@pytest.mark.parametrize("has_lenders", [True, False])
def test_a_lost_connection_is_a_doubt_about_that_lender_alone(has_lenders: bool) -> None:
    asked: list[object] = []
    members = [SimpleNamespace(node=node, address=f"10.0.0.{at}:7946") for at, node in enumerate((NODE, OTHER), 1)]
    protocol: Any = SimpleNamespace(lenders=lambda: {NODE: ("ab",)} if has_lenders else {}, counts=Counter)
    link = LendingLink(
        protocol, lambda name, request: asked.append(request), lambda: None, lambda node: "", lambda: members
    )  # type: ignore[arg-type]
    for at in (1, 2, 3):
        link.on_lost(f"10.0.0.{at}:7946")
    assert asked == ([requests.Doubt(NODE)] if has_lenders else []), "only who lends, and only by its whole address"


def test_a_device_that_is_too_hot_offers_nothing() -> None:
    asked: list[Any] = []
    heat = [False]
    protocol: Any = SimpleNamespace(ledger=Ledger(), offers=lambda now_ns: [])
    link = LendingLink(
        protocol, lambda name, request: asked.append(request), lambda: None, lambda node: "", is_hot=lambda: heat[0]
    )
    pulse = words.Pulse(0, {}, {}, {DIGEST.hex(): 7}, 0, {DIGEST.hex(): ("detect/pv-fault", 720)})
    for hot in (False, True, False):
        heat[0] = hot
        link.take(pulse)
        held = () if hot else (requests.Held(DIGEST, 7, "detect/pv-fault", 720),)
        assert asked.pop() == requests.Stock(held, 0, None)


def law_of_a_member_that_does_all_it_can(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """For two days, each minute, with a restart in between: what others did stays, and the chain is sound."""
    patch.setattr(lending_audit, "FILE_BYTES", 80_000)
    patch.setattr(lending_audit, "SHARE_BYTES", 10_000)
    world, ledger = World(folder), Ledger()
    honest = [NodeId(bytes([9, at]) + bytes(14)) for at in range(3)]
    for node in honest:
        ledger.note("lent", node, DIGEST, 80_000, b"answer")
    for minute in range(2 * 24 * 60):
        world.now_s += PERIOD_S
        for bundle in range(16):
            for what in ("granted", "lent", "refused_busy"):
                ledger.note(what, NODE, bytes([bundle]) * 32, 1 << 40, b"answer")
        for what in ("found_wrong", "ejected"):
            ledger.note(what, NODE)
        if minute % 600 == 300:
            ledger.note("ejected", honest[0])
        world.audit._last.result()
        assert world.audit.is_due
        world.audit.write(ledger.take(world.audit.resting()))
        if minute == 1_000:
            world.audit.close(ledger.take())
            later = World(folder)
            later.now_s, world.now_s, world.audit = world.now_s, world.now_s, later.audit
            later.audit._clock_s = lambda world=world: world.now_s  # type: ignore[misc]
        if minute % 240 == 0:
            world.audit._last.result()
            said = [json.loads(line) for file in world.folder.iterdir() for line in file.read_text().splitlines()]
            there = {row["member"] for row in said if row["what"] == "lent"}
            assert {one.hex() for one in honest} <= there, "what others did was pushed out"
    world.audit.close(ledger.take())
    assert verify_folder(world.folder)[2] is None
    said = [json.loads(line) for file in world.folder.iterdir() for line in file.read_text().splitlines()]
    assert sum(row["count"] for row in said if row.get("member") == NODE.hex()) == 2 * 24 * 60 * 50, "all is counted"
    assert sum(row["member"] == honest[0].hex() and row["what"] == "ejected" for row in said if "member" in row) == 5


def test_law_one_member_pushes_out_nothing_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    law_of_a_member_that_does_all_it_can(tmp_path, monkeypatch)


def test_an_audit_without_shares_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(LendingAudit, "resting", lambda self: set())

    assert_found(without, lambda: law_of_a_member_that_does_all_it_can(tmp_path, monkeypatch), monkeypatch)


WHATS = st.sampled_from(["granted", "lent", "borrowed", "refused_late", "found_wrong"])


def law_of_the_ledgers_shares(
    hostile: list[tuple[str, int]], honest: list[tuple[str, int, int]], hold: set[int]
) -> None:
    """Whatever one member does, others' lines are told apart as without it; what is held back is told later, whole."""
    members = [NodeId(bytes([at]) * 16) for at in range(1, 33)]

    def lines(said: list[tuple[str, NodeId, int]]) -> list[Line]:
        ledger = Ledger()
        for what, member, bundle in said:
            ledger.note(what, member, bytes([bundle]) * 32, 1, b"answer")
        taken = ledger.take({members[at] for at in hold})
        assert not {line.member for line in taken} & {members[at] for at in hold}
        return [*taken, *ledger.take()]

    others = [(what, members[at], bundle) for what, at, bundle in honest]
    alone = lines(others)
    beside = lines([*((what, NODE, bundle) for what, bundle in hostile), *others])
    assert [line for line in beside if line.member != NODE] == alone, "a line of somebody else is gone"
    assert sum(line.count for line in beside if line.member == NODE) == len(hostile)
    assert len(beside) - len(alone) <= LINES_EACH + 3


@example([("granted", at) for at in range(17)] + [("found_wrong", at) for at in range(3)], [], set())
@given(
    st.lists(st.tuples(WHATS, st.integers(0, 255)), max_size=400),
    st.lists(st.tuples(WHATS, st.integers(0, 31), st.integers(0, 4)), max_size=100),
    st.sets(st.integers(0, 31), max_size=4),
)
@settings(deadline=None, report_multiple_bugs=False)
def test_law_nobody_hides_what_others_did(
    hostile: list[tuple[str, int]], honest: list[tuple[str, int, int]], hold: set[int]
) -> None:
    law_of_the_ledgers_shares(hostile, honest, hold)


def test_a_ledger_that_is_everybodys_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = [("granted", bundle) for bundle in range(256)] * 2

    def one_for_all(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(ledgers, "LINES_EACH", 1 << 20)
        patch.setattr(ledgers, "LINES_MAX", 64)

    assert_found(one_for_all, lambda: law_of_the_ledgers_shares(hostile, [("lent", 1, 0)], set()), monkeypatch)


def test_an_audit_whose_oldest_file_had_to_go_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 9_000
    monkeypatch.setattr(lending_audit, "FILE_BYTES", most * lending_audit.FILE_BYTES // (8 << 20))
    world, ledger = World(tmp_path), Ledger()
    for _ in range(60):
        ledger.note("lent", NODE, DIGEST, 80_000, b"answer")
        world.audit.write(ledger.take())
    world.audit.close()
    first = min(json.loads(line)["n"] for file in world.folder.iterdir() for line in file.read_text().splitlines())
    assert first > 1, "nothing had to go"
    assert sum(file.stat().st_size for file in world.folder.iterdir()) <= most
    lines, _, problem = verify_folder(world.folder)
    assert (lines, problem) == (61 - first, None)
