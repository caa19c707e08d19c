"""`swarmd keys` as officers use it: three keys, two desks, and slips that change nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from swarmd.cli.main import main
from swarmd.identity import officers
from swarmd.identity.fleet import Fleet
from swarmd.identity.prepared import missing, read, statement_of
from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.envelopes import decode_envelope
from swarmd_protocols.trust.roots import mark
from tests.support.officers import NAMES, ROLES, officer

pytestmark = pytest.mark.slow

PASSPHRASE = "correct horse battery"
Keys = Callable[..., int]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a sealed key (cheap to open) and a public half of each officer."""
    monkeypatch.chdir(tmp_path)
    for name in NAMES:
        one = officer(name)
        path = tmp_path / f"{name}.key"
        path.write_bytes(officers.seal_key(one.seed, name, PASSPHRASE, operations=1, memory_kib=8))
        path.chmod(0o600)
        (tmp_path / f"{name}.pub").write_text(one.half.line + "\n")
    return tmp_path


def holders(*skipped: str) -> list[str]:
    """`--root` and `--role` of the fleet of the tests."""
    words = []
    for role, (need, names) in ROLES.items():
        if role not in skipped:
            words += ["--root"] if role == "root" else ["--role", role]
            words += [str(need), *(f"{name}.pub" for name in names)]
    return words


def sign(path: str, *names: str, fleet: str = "") -> int:
    """`keys sign` with these officers' keys, passphrases through a descriptor."""
    ours, theirs = os.pipe()
    os.write(theirs, f"{PASSPHRASE}\n".encode() * len(names))
    os.close(theirs)
    words = ["keys", "sign", path, "--yes", "--passphrase-fd", str(ours)]
    words += [word for name in names for word in ("--key", f"{name}.key")]
    try:
        return main([*words, *(["--fleet", fleet] if fleet else [])])
    finally:
        os.close(ours)


@pytest.fixture
def fleet(desk: Path) -> Fleet:
    """A fleet of three officers; node drone-1 and the thief drone-3 are in the swarm farm."""
    assert main(["keys", "root", "fleet", "--name", "acme", *holders()]) == 0
    assert sign("fleet/root-1.prepared", "alice", "bob") == 0
    assert main(["keys", "submit", "fleet/root-1.prepared", "--fleet", "fleet"]) == 0
    assert main(["keys", "prepare", "group-key", "fleet", "--swarm", "farm", "-o", "group"]) == 1  # No such swarm yet.
    for out, words in {
        "group": ["group-key", "fleet", "--first"],
        "one": ["enrol", "fleet", "drone-1", "--public", "mallory.pub"],
        "three": ["enrol", "fleet", "drone-3", "--public", "erin.pub"],
    }.items():
        assert main(["keys", "prepare", *words, "--swarm", "farm", "-o", out]) == 0
        assert sign(out, "dave") == 0
        assert main(["keys", "submit", out, "--fleet", "fleet"]) == 0
    return Fleet(desk / "fleet")


def test_a_fleet_of_three_officers_holds_no_key(fleet: Fleet) -> None:
    assert not (fleet.folder / "keys").exists()
    assert [node.name for node in fleet.nodes("farm")] == ["drone-1", "drone-3"]
    assert len(fleet.trust_of("farm").group_keys) == 1
    assert sorted(path.name for path in (fleet.folder / "officers").iterdir()) == [
        f"{name}.pub" for name in ("alice", "bob", "carol", "dave", "erin")
    ]


def test_a_thief_is_shut_out_from_two_desks(fleet: Fleet, capsys: pytest.CaptureFixture[str], desk: Path) -> None:
    words = ["keys", "prepare", "revoke", "fleet", "drone-3", "--swarm", "farm", "--reason", "stolen", "-o", "out"]
    assert main(words) == 0
    (desk / "carols-copy").write_bytes((desk / "out").read_bytes())
    capsys.readouterr()
    assert sign("out", "alice", fleet="fleet") == 0
    said = capsys.readouterr().out
    assert "shuts out of the swarm 'farm', for good:" in said
    assert "drone-3 (node " in said
    assert said.index("shuts out") < said.index("signed by alice")
    assert "missing: revoke takes 2 signatures and has 1; 1 of: bob, carol" in said
    assert main(["keys", "submit", "out", "--fleet", "fleet"]) == 1
    assert "1 of: bob, carol" in capsys.readouterr().err
    assert not fleet.trust_of("farm").revoked
    assert sign("carols-copy", "carol", fleet="fleet") == 0
    assert main(["keys", "submit", "out", "carols-copy", "--fleet", "fleet"]) == 0
    assert len(fleet.trust_of("farm").revoked) == 1
    assert main(["keys", "submit", "carols-copy", "out", "--fleet", "fleet"]) == 0
    assert "was there already" in capsys.readouterr().out


def test_a_key_of_the_wrong_role_is_refused_before_its_passphrase(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["keys", "prepare", "revoke", "fleet", "drone-3", "--swarm", "farm", "--reason", "x", "-o", "out"]
    assert main(words) == 0
    assert main(["keys", "sign", "out", "--yes", "--key", "dave.key"]) == 1
    assert "dave is a key of enrol; this takes keys of the role revoke: alice, bob, carol" in capsys.readouterr().err
    assert missing(read(Path("out")))[0].startswith("revoke takes 2 signatures and has 0")


def test_without_a_yes_nothing_is_signed(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["keys", "prepare", "heartbeat", "fleet", "1", "-o", "beat"]) == 0
    before = Path("beat").read_bytes()
    assert main(["keys", "sign", "beat", "--key", "erin.key"]) == 1
    assert "give --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert main(["keys", "sign", "beat", "--key", "erin.key"]) == 1
    assert Path("beat").read_bytes() == before


def test_a_new_root_does_not_ask_to_enrol_a_revoked_node_again(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["keys", "prepare", "revoke", "fleet", "drone-3", "--swarm", "farm", "--reason", "stolen", "-o", "out"]
    assert main(words) == 0
    assert submit_signed("out", "bob", "carol") == 0
    words = ["keys", "prepare", "root", "fleet", "--role", "heartbeat", "1", "erin.pub", "-o", "root-2"]
    capsys.readouterr()
    assert main(words) == 0
    assert capsys.readouterr().out.count("missing: root takes") == 1  # Not once for the old root and once for the new.
    assert submit_signed("root-2", "alice", "bob") == 0
    assert "void" not in capsys.readouterr().out


def test_two_desks_cannot_overwrite_each_others_root(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    for out, holder in (("mine", "dave"), ("yours", "erin")):
        words = ["--role", "heartbeat", "1", f"{holder}.pub", "-o", out]
        assert main(["keys", "prepare", "root", "fleet", *words]) == 0
        assert sign(out, "alice", "carol") == 0
    assert main(["keys", "submit", "mine", "--fleet", "fleet"]) == 0
    held = fleet.root()
    capsys.readouterr()
    assert main(["keys", "submit", "yours", "--fleet", "fleet"]) == 1
    assert "another root" in capsys.readouterr().err
    assert fleet.root() == held
    assert main(["keys", "submit", "mine", "--fleet", "fleet"]) == 0  # Once more harms nobody.
    assert sign("yours", "bob", fleet="fleet") == 1
    assert "prepared under another root" in capsys.readouterr().err


def test_two_group_keys_of_one_number_are_told_apart(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarmd.identity.fleet.time", SimpleNamespace(time=lambda: 4_000_000_000))
    for out in ("mine", "yours"):
        assert main(["keys", "prepare", "group-key", "fleet", "--swarm", "farm", "-o", out]) == 0
        assert sign(out, "dave") == 0
    assert main(["keys", "submit", "mine", "--fleet", "fleet"]) == 0
    held = fleet.trust_of("farm").group_keys
    assert main(["keys", "submit", "yours", "--fleet", "fleet"]) == 1
    assert "another group key of number 4000000000" in capsys.readouterr().err
    assert fleet.trust_of("farm").group_keys == held


def test_two_revocations_of_one_number_are_both_kept(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmd.identity.fleet.time", SimpleNamespace(time=lambda: 4_000_000_000))
    for node in ("drone-1", "drone-3"):
        words = ["keys", "prepare", "revoke", "fleet", node, "--swarm", "farm", "--reason", "x", "-o", node]
        assert main(words) == 0
        assert sign(node, "alice", "bob") == 0
    for node in ("drone-1", "drone-3"):
        assert main(["keys", "submit", node, "--fleet", "fleet"]) == 0
    assert len(fleet.trust_of("farm").revoked) == 2


def test_new_revoke_keys_say_again_who_is_out(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["keys", "prepare", "revoke", "fleet", "drone-3", "--swarm", "farm", "--reason", "x", "-o", "out"]
    assert main(words) == 0
    assert sign("out", "alice", "bob") == 0
    assert main(["keys", "submit", "out", "--fleet", "fleet"]) == 0
    gone = set(fleet.trust_of("farm").revoked)
    words = ["--role", "revoke", "2", "dave.pub", "erin.pub", "mallory.pub", "-o", "root-2"]
    assert main(["keys", "prepare", "root", "fleet", *words]) == 0
    said = capsys.readouterr().out
    assert "out: alice, bob, carol" in said
    assert "in: dave, erin, mallory" in said
    assert sign("root-2", "alice", "bob") == 0
    assert main(["keys", "submit", "root-2", "--fleet", "fleet"]) == 0
    if not fleet.trust_of("farm").revoked:
        assert "keys prepare revoke fleet --swarm farm --again" in capsys.readouterr().out
        words = ["keys", "prepare", "revoke", "fleet", "--again", "--swarm", "farm", "--reason", "x", "-o", "again"]
        assert main(words) == 0
        assert sign("again", "dave", "erin") == 0
        assert main(["keys", "submit", "again", "--fleet", "fleet"]) == 0
    assert set(fleet.trust_of("farm").revoked) == gone


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["prepare", "root", "fleet", "--role", "relaese", "1", "alice.pub", "-o", "x"], "did you mean 'release'"),
        (["prepare", "root", "fleet", "--role", "release", "3", "alice.pub", "-o", "x"], "3 of 1 keys cannot sign"),
        (["prepare", "root", "fleet", "--role", "release", "1", "alice.pub", "alice.pub", "-o", "x"], "are one key"),
        (["prepare", "root", "fleet", "--role", "release", "alice.pub", "-o", "x"], "write it as ROLE NEED PUB"),
        (["prepare", "root", "fleet", "-o", "x"], "say which role changes"),
        (["prepare", "revoke", "fleet", "d", "--swarm", "fram", "--reason", "x", "-o", "x"], "did you mean 'farm'"),
        (["prepare", "revoke", "fleet", "d", "--swarm", "farm", "--reason", "x", "-o", "x"], "no node of swarm"),
        (
            ["prepare", "enrol", "fleet", "..", "--public", "bob.pub", "--swarm", "farm", "-o", "x"],
            "cannot name a node",
        ),
        (
            ["prepare", "enrol", "fleet", "a+b", "--public", "bob.pub", "--swarm", "farm", "-o", "x"],
            "cannot name a node",
        ),
        (["prepare", "enrol", "fleet", "a", "--public", "bob.pub", "--swarm", "..", "-o", "x"], "cannot name a swarm"),
        (["prepare", "floor", "fleet", "0", "--model", "m", "-o", "x"], "floor: Expected"),
        (["root", "fleet", "--name", "again", "--root", "1", "alice.pub"], "holds a fleet already"),
        (["push", "fleet", "--swarm", "fram"], "did you mean 'farm'"),
        (["rotate", "fleet", "--swarm", "lake"], "there is no swarm of this fleet 'lake'"),
        (["role", "fleet", "bogus", "--need", "1", "--keys", "1"], "there is no role 'bogus'"),
        (["enrol", "fleet", "a/b", "--swarm", "farm", "--out", "d"], "cannot name a node"),
    ],
)
def test_a_slip_is_refused_and_changes_nothing(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    before = {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(["keys", *words]) == 1
    assert said in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()} == before


def test_no_default_weakens(fleet: Fleet) -> None:
    for words in (["role", "fleet", "release"], ["revoke", "fleet", "drone-3"]):
        with pytest.raises(SystemExit) as usage:
            main(["keys", *words])
        assert usage.value.code == 2


def test_a_revocation_in_custody_completes_and_says_what_is_due(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revoke key is here and the enrol key is not: the thief is out, and who changes the group key is said."""
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme", "--role", "root=1/1", "--role", "revoke=1/1"]) == 0
    assert main(["keys", "enrol", "fleet", "drone-3", "--swarm", "farm", "--out", "d3"]) == 0
    for role in ("enrol", "revoke"):
        Path(f"fleet/keys/{role}-1.key").rename(f"{role}-1.key")
    words = ["keys", "revoke", "fleet", "drone-3", "--swarm", "farm", "--reason", "x"]
    assert main(words) == 1
    assert not Fleet(Path("fleet")).trust_of("farm").revoked
    assert main([*words, "--key", "revoke-1.key", "--control", "nobody"]) == 3  # No daemon: nothing is signed.
    assert not Fleet(Path("fleet")).trust_of("farm").revoked
    capsys.readouterr()
    assert main([*words, "--key", "revoke-1.key"]) == 0
    said = capsys.readouterr().out
    assert "is out" in said
    assert "DUE: a new group key" in said
    assert len(Fleet(Path("fleet")).trust_of("farm").revoked) == 1
    assert main([*words, "--key", "revoke-1.key"]) == 0
    said = capsys.readouterr().out
    assert "is out already" in said
    assert "DUE: a new group key" in said, "it stays due until somebody does it"
    assert "1 of: " in said
    assert main(["keys", "status", "fleet", "--offline", "--json"]) == 0
    assert ["a new group key" in one["what"] for one in json.loads(capsys.readouterr().out)["due"]] == [True]
    assert main([*words, "--key", "enrol-1.key"]) == 0
    assert "new group key of swarm farm written" in capsys.readouterr().out, "a second run completes the first"
    assert main(["keys", "status", "fleet", "--offline"]) == 0
    assert "nothing is due" in capsys.readouterr().out


def test_model_statements_say_what_they_do_and_refuse_the_wrong_role(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme"]) == 0
    floor = ["model", "floor", "4", "--model", "faults", "-o", "floor.swm"]
    key = ["--key", "fleet/keys/floor-1.key"]
    assert main([*floor, *key]) == 1
    assert "give the fleet's folder with --fleet FLEET, or --epoch N" in capsys.readouterr().err
    assert main([*floor, *key, "--fleet", "fleet", "--epoch", "2"]) == 1
    assert "is of epoch 1; leave --epoch out" in capsys.readouterr().err
    assert not Path("floor.swm").exists()
    assert main([*floor, *key, "--fleet", "fleet"]) == 0
    capsys.readouterr()
    before = Path("floor.swm").read_bytes()
    assert main(["model", "sign", "floor.swm", "--key", "fleet/keys/release-1.key"]) == 1
    assert "is a key of the role release; this takes keys of the role floor" in capsys.readouterr().err
    assert Path("floor.swm").read_bytes() == before
    assert main(["model", "sign", "floor.swm", "--key", "fleet/keys/floor-2.key"]) == 0
    assert "no node will ever again run 'faults' below version 4" in capsys.readouterr().out
    assert main(["model", "verify", "floor.swm", "--fleet", "fleet"]) == 0
    assert "below version 4" in capsys.readouterr().out


def test_a_statement_is_shown_with_who_signed_it_and_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["keys", "root", "fleet", "--name", "acme"]) == 0
    floor = ["model", "floor", "4", "--model", "faults", "-o", "floor.swm", "--fleet", "fleet"]
    assert main([*floor, "--key", "fleet/keys/revoke-1.key"]) == 1
    assert "revoke-1 is a key of revoke; this takes keys of the role floor" in capsys.readouterr().err
    assert not Path("floor.swm").exists()
    assert main([*floor, "--key", "fleet/keys/floor-1.key"]) == 0
    capsys.readouterr()
    assert main(["model", "show", "floor.swm"]) == 0
    said = capsys.readouterr().out
    assert "no node will ever again run 'faults' below version 4" in said
    assert "--fleet FLEET" in said
    assert main(["model", "show", "floor.swm", "--fleet", "fleet"]) == 0
    assert "does not hold: floor.swm: floor statement lacks 2 good signatures" in capsys.readouterr().out
    assert main(["model", "sign", "floor.swm", "--fleet", "fleet"]) == 0
    capsys.readouterr()
    assert main(["model", "show", "floor.swm", "--fleet", "fleet", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["holds"], len(shown["signatures"]) >= 2, shown["kind"]) == (True, True, "floor")
    Path("junk").write_bytes(b"junk")
    assert main(["model", "show", "junk"]) == 1


def test_a_sealed_key_signs_at_one_desk_as_well(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, f"{PASSPHRASE}\n".encode())
    os.close(theirs)
    before = len(fleet.trust_of("farm").group_keys)
    words = ["keys", "rotate", "fleet", "--swarm", "farm", "--key", "dave.key", "--passphrase-fd", str(ours)]
    assert main(words) == 0
    os.close(ours)
    assert len(fleet.trust_of("farm").group_keys) == before + 1


def submit_signed(path: str, *names: str) -> int:
    assert sign(path, *names) == 0
    return main(["keys", "submit", path, "--fleet", "fleet"])


def test_new_enrol_keys_keep_every_node_and_say_which(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = {one.name: one.node for one in fleet.nodes("farm")}
    words = ["keys", "prepare", "root", "fleet", "--role", "enrol", "1", "erin.pub", "-o", "root-2"]
    assert main(words) == 0
    said = capsys.readouterr().out
    for name, node in nodes.items():
        assert f"{name} is node {node.hex()} of swarm farm" in said
    assert "1 of the statements that stay right are not in the file: group keys" in said
    assert submit_signed("root-2", "alice", "bob") == 0
    trust = fleet.trust_of("farm")
    assert [trust.certified(NodeId(node)) is not None for node in nodes.values()] == [True, True]
    assert len(trust.group_keys) == 1
    # Named by root 2, they are still known by name under root 3.
    words = ["keys", "prepare", "root", "fleet", "--role", "enrol", "1", "mallory.pub", "-o", "root-3"]
    assert main(words) == 0
    assert f"drone-1 is node {nodes['drone-1'].hex()} of swarm farm" in capsys.readouterr().out
    assert submit_signed("root-3", "alice", "bob") == 0
    assert fleet.trust_of("farm").certified(NodeId(nodes["drone-3"])) is not None


def test_a_certificate_that_is_slipped_into_a_root_is_warned_of(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rogue, certified with the stolen enrol key, is named as right by a root that somebody else prepared."""
    from swarmd.identity.desk import prepare_certificate
    from swarmd.identity.prepared import add_signature, encode, prepare
    from swarmd.identity.words import parse_root

    rogue = add_signature(prepare_certificate(fleet, "farm", "rogue", officer("bob").half.public), officer("dave"))
    words = ["keys", "prepare", "root", "fleet", "--role", "enrol", "1", "erin.pub", "--stolen", "-o", "root-2"]
    assert main(words) == 0
    honest = read(Path("root-2"))
    root = parse_root(honest.payload)
    slipped = mark(decode_envelope(statement_of(rogue)))
    payload = msgspec.msgpack.encode(msgspec.structs.replace(root, kept=tuple(sorted([*root.kept, slipped]))))
    capsys.readouterr()
    for shown in ((), (statement_of(rogue),)):
        bad = prepare("root", payload, honest.root, (), (*honest.certificates, *shown))
        path = Path(f"bad-{len(shown)}")
        path.write_bytes(encode(bad))
        assert main(["keys", "inspect", str(path)]) == 0
        said = capsys.readouterr().out
        assert "rogue is node" in said if shown else "WARNING: 2 of the statements that stay right" in said


def test_a_revocation_that_crossed_a_new_epoch_is_said_to_be_due_again(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """The root was prepared before the revocation, so it does not name it; the stolen epoch clears it."""
    words = ["keys", "prepare", "root", "fleet", "--role", "revoke", "2", "dave.pub", "erin.pub", "--stolen"]
    assert main([*words, "-o", "root-2"]) == 0
    words = ["keys", "prepare", "revoke", "fleet", "drone-3", "--swarm", "farm", "--reason", "x", "-o", "out"]
    assert main(words) == 0
    assert submit_signed("out", "alice", "bob") == 0
    gone = set(fleet.trust_of("farm").revoked)
    assert len(gone) == 1
    capsys.readouterr()
    assert submit_signed("root-2", "alice", "bob") == 0
    assert "next: swarm farm: say again who is out" in capsys.readouterr().out
    assert not fleet.trust_of("farm").revoked
    assert main(["keys", "status", "fleet", "--offline"]) == 0
    assert "had shut out are in again: drone-3; if they are to stay out" in capsys.readouterr().out
    words = ["keys", "prepare", "revoke", "fleet", "--again", "--swarm", "farm", "--reason", "x", "-o", "again"]
    assert main(words) == 0
    assert submit_signed("again", "dave", "erin") == 0
    assert set(fleet.trust_of("farm").revoked) == gone
    assert main(["keys", "status", "fleet", "--offline"]) == 0
    assert "are in again" not in capsys.readouterr().out
    assert main([*words[:-1], "more"]) == 1
    assert "nobody of swarm farm was shut out by keys that were replaced since" in capsys.readouterr().err


def test_a_desk_that_is_killed_before_it_puts_aside_what_fell_does_so_when_it_is_asked_again(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder holds meanwhile: a group key that names what fell is not there, and nothing is to be restored."""
    words = ["keys", "prepare", "root", "fleet", "--role", "revoke", "2", "dave.pub", "erin.pub", "--stolen"]
    assert main([*words, "-o", "root-2"]) == 0
    before = sorted(fleet.trust_of("farm").group_keys)
    words = ["keys", "prepare", "revoke", "fleet", "drone-3", "--swarm", "farm", "--reason", "x", "-o", "out"]
    assert main(words) == 0
    assert submit_signed("out", "alice", "bob") == 0
    assert main(["keys", "prepare", "group-key", "fleet", "--swarm", "farm", "-o", "key-2"]) == 0
    assert submit_signed("key-2", "dave") == 0
    with monkeypatch.context() as killed:
        killed.delattr("swarmd.identity.desk._put_aside")
        with pytest.raises(NameError):
            submit_signed("root-2", "alice", "bob")
    assert fleet.root().version == 2
    assert sorted(fleet.trust_of("farm").group_keys) == before
    capsys.readouterr()
    assert main(["keys", "submit", "root-2", "--fleet", "fleet"]) == 0
    said = capsys.readouterr().out
    assert all(words in said for words in ("say again who is out", "make a group key"))
    assert len(list((Path("fleet") / "swarms" / "farm" / "former").iterdir())) == 2
    assert main(["keys", "submit", "root-2", "--fleet", "fleet"]) == 0  # As if it had been killed after that.
    assert "make a group key" in capsys.readouterr().out


def test_a_strangers_key_under_an_officers_name_is_not_taken_for_hers(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], desk: Path
) -> None:
    """Whoever prepares a root writes the names into it; the desk goes by its own, and shows fingerprints."""
    mallory = officer("mallory").half
    (desk / "dave2.pub").write_text(officers.PublicHalf(mallory.public, "dave").line + "\n")
    words = ["keys", "prepare", "root", "fleet", "--role", "heartbeat", "1", "dave2.pub", "-o", "root-2"]
    assert main(words) == 0
    for known in ((), ("--fleet", "fleet")):
        capsys.readouterr()
        assert main(["keys", "inspect", "root-2", *known]) == 0
        said = capsys.readouterr().out
        assert mallory.fingerprint in said
        assert ("not-the-dave-you-know" in said) == bool(known)
    assert sign("root-2", "alice", fleet="fleet") == 0
    assert "not-the-dave" not in Path("root-2").read_text()


def test_a_release_is_signed_by_two_officers_and_published_as_a_node_takes_it(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], desk: Path
) -> None:
    (desk / "m.tflite").write_bytes(b"\x18\0\0\0TFL3" + bytes(5_000))
    build = ["model", "build", "m.tflite", "--fleet", "fleet", "--model", "faults", "--version", "1", "--untried"]
    assert main([*build, "-o", "pub1"]) == 0
    assert main(["keys", "prepare", "release", "fleet", "pub1", "-o", "r1"]) == 0
    assert "releases version 1 of the model 'faults'" in capsys.readouterr().out
    assert sign("r1", "carol", fleet="fleet") == 0
    submit = ["keys", "submit", "r1", "--fleet", "fleet", "--publication", "pub1"]
    before = (desk / "pub1" / "release.swm").read_bytes()
    assert main(submit) == 1
    assert (desk / "pub1" / "release.swm").read_bytes() == before
    assert sign("r1", "alice", fleet="fleet") == 0
    assert main(submit) == 0
    assert main(["model", "verify", "pub1", "--fleet", "fleet"]) == 0
    assert main([*build, "-o", "pub2", "--soak", "1"]) == 0
    capsys.readouterr()
    assert main([*submit[:-1], "pub2"]) == 1
    assert "is not the release that was signed" in capsys.readouterr().err
    for out, words in {
        "halt": ["halt", "fleet", "pub1", "--reason", "drifts"],
        "gone": ["model-revoke", "fleet", "pub1", "--reason", "bad"],
        "stage": ["force", "fleet", "pub1", "--stage", "1"],
        "floor": ["floor", "fleet", "1", "--model", "faults"],
    }.items():
        assert main(["keys", "prepare", *words, "-o", out]) == 0
        assert submit_signed(out, "alice", "bob") == 0
        (written,) = (desk / "fleet" / "statements").glob(f"{words[0]}-*.swm")
        assert main(["model", "verify", str(written), "--fleet", "fleet"]) == 0
