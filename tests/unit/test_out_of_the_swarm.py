"""A node that is out because of keys says so, with the reason and the remedy: doctor, health, status."""

import json
from pathlib import Path

import pytest

from swarmd.api.views import trust_row
from swarmd.brain.journal import Journal
from swarmd.brain.trust_told import told_of
from swarmd.cli.main import main
from swarmd.events.kinds import ALERTS
from swarmd.identity.files import IDENTITY_FILE, write_secret_file
from swarmd.identity.fleet import Fleet, create_fleet
from swarmd.identity.remedies import OUT_CODES, out_code
from swarmd_protocols.effects import MemberState
from swarmd_protocols.ids import NodeId
from swarmd_protocols.summary import MemberView, TrustSummary
from swarmd_protocols.swim.sender import trust_key


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return create_fleet(tmp_path / "fleet", "acme", {"root": (1, 1), "enrol": (1, 1), "revoke": (1, 1)})


def doctor(home: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    (home / "c.toml").write_text("")
    flags = ["-c", str(home / "c.toml"), "--listen", "127.0.0.1:0", "--state", str(home), "--identity", str(home)]
    main(["doctor", *flags, "--json"])
    return {row["check"]: row for row in json.loads(capsys.readouterr().out)["findings"]}


def test_the_doctor_of_a_node_that_does_not_run_says_why_it_is_out(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = fleet.enrol("drone-1", "farm")
    write_secret_file(tmp_path / IDENTITY_FILE, identity.to_bytes())
    assert "member" not in doctor(tmp_path, capsys)
    revoked = fleet.revoke("farm", [identity.node], "lost over the sea")
    journal = Journal(tmp_path)
    journal.commit([(trust_key(revoked.kind, revoked.data), revoked.data)])
    journal.close()
    found = doctor(tmp_path, capsys)["member"]
    assert (found["verdict"], "revoked: lost over the sea" in found["found"]) == ("fail", True)
    assert "swarmd enrol" in found["remedy"]


def test_the_doctor_of_a_node_whose_certificate_fell_names_who_helps(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = fleet.enrol("drone-1", "farm")
    write_secret_file(tmp_path / IDENTITY_FILE, identity.to_bytes())
    for path in (fleet.folder / "swarms" / "farm").glob("node-*"):
        path.unlink()  # Enrolled at another desk.
    root = fleet.change_role("enrol", 1, 1)
    journal = Journal(tmp_path)
    journal.commit([(trust_key(root.kind, root.data), root.data)])
    journal.close()
    found = doctor(tmp_path, capsys)["member"]
    assert found["verdict"] == "fail"
    assert "nobody has to come here: `swarmd keys renew FLEET NAME`" in found["remedy"]


def test_every_reason_to_be_out_is_an_alert() -> None:
    assert set(OUT_CODES) <= set(ALERTS)
    assert out_code("") == ""
    fleet_says = (
        "revoked",
        "revoked: x",
        "replaced: its name was enrolled again under another key",
        "without a certificate: root 2",
    )
    assert [out_code(text) for text in fleet_says] == ["revoked", "revoked", "replaced", "not-certified"]


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"{",
        b"[1]",
        b"7",
        b"\xff\xfe",
        b'{"root": "x", "group_key": -1, "certificate": 3}',
        b'{"root": true, "group_key": 1e9}',
        b"[" * 100_000,
        b'{"root": 1, "pad": "' + b"x" * 1_000 + b'"}',
        b'{"group_key": ' + b"9" * 400 + b"}",
    ],
)
def test_whatever_a_member_tells_of_its_trust_is_shown_or_left_out(told: bytes) -> None:
    view = MemberView(NodeId(bytes(16)), "x", "", MemberState.ALIVE, 1, None, 0, "good", (), "", "", {"trust": told})
    row = trust_row(view)
    assert (row["root"], row["group_key"], row["certificate"]) == (None, None, None)


def test_what_a_node_tells_of_its_trust_is_read_as_it_was_told() -> None:
    trust = TrustSummary(2, 1, 1_795_311_545, "0123456789abcdef", "", {}, False)
    meta = {"trust": told_of(trust)}
    view = MemberView(NodeId(bytes(16)), "x", "", MemberState.ALIVE, 1, None, 0, "good", (), "", "", meta)
    row = trust_row(view)
    assert (row["root"], row["group_key"], row["certificate"]) == (2, 1_795_311_545, "0123456789abcdef")
    assert len(told_of(trust)) < 128
