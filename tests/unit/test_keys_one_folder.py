"""`swarmd keys` where all keys lie in one folder: swarms and names are not taken for others, renewals keep ids."""

from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.identity.fleet import Fleet
from swarmd_protocols.ids import NodeId

pytestmark = pytest.mark.slow


def test_the_only_swarm_is_taken_and_of_several_one_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme", "--role", "root=1/1"]) == 0
    assert main(["keys", "rotate", "fleet"]) == 1
    assert "has no swarm yet; name it: `swarmd keys prepare group-key" in capsys.readouterr().err
    assert main(["keys", "enrol", "fleet", "a", "--swarm", "farm", "--out", "a"]) == 0
    assert main(["keys", "rotate", "fleet"]) == 0
    assert "new group key of swarm farm" in capsys.readouterr().out
    assert main(["keys", "enrol", "fleet", "b", "--swarm", "fram", "--out", "b"]) == 1
    assert "did you mean 'farm'" in capsys.readouterr().err
    assert Fleet(Path("fleet")).swarms() == ["farm"], "a slip makes no swarm"
    assert main(["keys", "enrol", "fleet", "b", "--swarm", "lake", "--new-swarm", "--out", "b"]) == 0
    for words in (["rotate"], ["push"], ["renew"], ["status", "--offline"]):
        assert main(["keys", words[0], "fleet", *words[1:]]) == 1
        assert "say which: --swarm farm | lake" in capsys.readouterr().err


def test_a_name_is_enrolled_twice_only_where_somebody_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme", "--role", "root=1/1"]) == 0
    assert main(["keys", "enrol", "fleet", "a", "--swarm", "farm", "--out", "a"]) == 0
    first = Fleet(Path("fleet")).nodes("farm")[0].node
    assert main(["keys", "enrol", "fleet", "a", "--out", "b"]) == 1
    assert f"'a' is node {first.hex()} of swarm farm already" in capsys.readouterr().err
    assert not Path("b").exists()
    assert main(["keys", "enrol", "fleet", "a", "--out", "b", "--replace"]) == 0
    assert f"a was node {first.hex()}: that key is void" in capsys.readouterr().out
    fleet = Fleet(Path("fleet"))
    assert fleet.trust_of("farm").certified(NodeId(first)) is None
    assert [kind for kind, _ in fleet.statements("farm")].count("node") == 1, "and a push tells the swarm"


def test_certificates_are_renewed_where_the_keys_were_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme", "--role", "root=1/1", "--role", "revoke=1/1"]) == 0
    for name in ("a", "b", "c"):
        assert main(["keys", "enrol", "fleet", name, "--swarm", "farm", "--out", name]) == 0
    assert main(["keys", "revoke", "fleet", "c", "--reason", "x"]) == 0
    capsys.readouterr()
    assert main(["keys", "role", "fleet", "enrol", "--need", "1", "--keys", "1"]) == 0
    said = capsys.readouterr().out
    assert said.index("keeps 2 certificates by name: a, b") < said.index("root 2 written"), "said before, not after"
    assert main(["keys", "status", "fleet", "--offline"]) == 0
    assert "certificates that enrol keys in force have not signed: a, b" in capsys.readouterr().out
    nodes = {one.name: one.node for one in Fleet(Path("fleet")).nodes("farm")}
    assert main(["keys", "renew", "fleet"]) == 0
    assert {one.name: one.node for one in Fleet(Path("fleet")).nodes("farm")} == nodes, "keys and ids stay"
    assert main(["keys", "renew", "fleet"]) == 0
    assert "is signed by enrol keys in force" in capsys.readouterr().out
    assert main(["keys", "renew", "fleet", "c"]) == 1
    assert "'c' is revoked" in capsys.readouterr().err


def test_all_keys_in_one_folder_say_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "try", "--name", "acme"]) == 0
    assert "ALL KEYS LIE IN ONE FOLDER" in capsys.readouterr().out
