"""Fleets on disk and `swarmd keys`: made, enrolled, rotated, revoked; what is wrong is said in a sentence."""

import json
from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.identity.files import (
    FLEET_SECRET_FILE,
    IDENTITY_FILE,
    IdentityFileError,
    curve_keys,
    dev_fleet_secret,
    load_identity,
    open_dev_fleet,
)
from swarmd.identity.fleet import Fleet, create_fleet
from swarmd.identity.names import NameRefused
from swarmd.identity.role_keys import FleetError, RoleKey, read_role_key, write_role_key
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.errors import IdentityError
from swarmd_protocols.releases.statements import Floor, Revoke
from swarmd_protocols.trust.envelopes import decode_envelope, sign_statement
from swarmd_protocols.trust.identity import enrol
from swarmd_protocols.trust.trust import Trust

CRYPTO = NaClCrypto()


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return create_fleet(tmp_path / "fleet", "acme")


def test_a_new_fleet_has_every_role_and_guards_its_keys(fleet: Fleet) -> None:
    roles = {role.name: (role.threshold, len(role.key_ids)) for role in fleet.root().roles}
    assert roles["root"] == (2, 3)
    assert roles["release"] == (2, 3)
    assert set(roles) == {"root", "enrol", "revoke", "release", "floor", "heartbeat"}
    for path in (fleet.folder / "keys").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FleetError, match="holds a fleet already"):
        create_fleet(fleet.folder, "again")


def test_an_enrolled_node_holds_and_two_of_a_swarm_share_the_group_key(fleet: Fleet) -> None:
    a, b, other = fleet.enrol("a", "farm"), fleet.enrol("b", "farm"), fleet.enrol("a", "lake")
    for identity in (a, b, other):
        identity.trust(CRYPTO)
    assert curve_keys(a).group_public == curve_keys(b).group_public != curve_keys(other).group_public
    assert len({a.node, b.node, other.node}) == 3
    assert [node.name for node in fleet.nodes("farm")] == ["a", "b"]


def test_the_same_name_again_is_a_new_key_whose_certificate_replaces_the_old_one(fleet: Fleet) -> None:
    first, second = fleet.enrol("a", "farm"), fleet.enrol("a", "farm")
    assert first.node != second.node
    assert second.claims().counter > first.claims().counter
    assert [node.node for node in fleet.nodes("farm")] == [second.node]


def test_a_rotated_group_key_is_taken_by_who_has_the_old_identity(fleet: Fleet) -> None:
    old = fleet.enrol("a", "farm")
    fleet.rotate("farm")
    trust = old.trust(CRYPTO)
    assert [trust.add(kind, statement) for kind, statement in fleet.statements("farm")] == [False, True]
    fresh = fleet.enrol("b", "farm")
    newest = max(trust.group_keys)
    assert curve_keys(fresh).group_public == curve_keys(old, [trust.group_keys[newest].key]).group_public
    # The newcomer can still dial the one that was away.
    assert curve_keys(old).group_public in curve_keys(fresh).older_group_publics


def test_a_revoked_node_is_out_and_a_newcomer_knows_it(fleet: Fleet) -> None:
    a, b = fleet.enrol("a", "farm"), fleet.enrol("b", "farm")
    fleet.revoke("farm", fleet.find_node("farm", "a"), "stolen")
    newcomer = fleet.enrol("c", "farm")
    trust = newcomer.trust(CRYPTO)
    assert trust.revoked == {a.node}
    with pytest.raises(IdentityError, match="revoked"):
        trust.certificate(a.certificate)
    assert trust.certificate(b.certificate).name == "b"
    with pytest.raises(FleetError, match="revoked already"):
        fleet.revoke("farm", [a.node], "again")


def test_a_name_stands_for_every_key_it_ever_had(fleet: Fleet) -> None:
    first, second = fleet.enrol("a", "farm"), fleet.enrol("a", "farm")
    assert fleet.find_node("farm", "a") == sorted([first.node, second.node])
    assert fleet.find_node("farm", first.node.hex()[:8]) == [first.node]
    assert fleet.find_node("farm", "ab" * 16) == [bytes.fromhex("ab" * 16)]
    for unknown in ("nobody", "0" * 8, first.node.hex()[:5], ""):
        with pytest.raises(FleetError, match="no node of swarm"):
            fleet.find_node("farm", unknown)


def test_new_role_keys_replace_the_old_ones_for_who_follows_the_chain(fleet: Fleet) -> None:
    before = fleet.enrol("a", "farm")
    old_enrol = fleet.seeds("enrol")
    signed = fleet.change_role("enrol", 2, 3)
    assert fleet.root().version == 2
    assert set(fleet.seeds("enrol")).isdisjoint(old_enrol)
    trust = Trust("farm", before.roots, CRYPTO)
    assert trust.add("root", signed.data)
    assert trust.certificate(before.certificate).name == "a", "the new root names it"
    rogue = enrol(bytes(32), "rogue", "farm", before.roots, before.group_keys, old_enrol, CRYPTO)
    with pytest.raises(IdentityError, match="signatures"):
        trust.certificate(rogue.certificate)  # Signed by keys that the root no longer names.
    after = fleet.enrol("b", "farm")
    assert trust.certificate(after.certificate).name == "b"


def test_a_newcomer_is_enrolled_under_a_group_key_that_names_who_is_out(fleet: Fleet) -> None:
    a = fleet.enrol("a", "farm")
    fleet.revoke("farm", [a.node], "stolen")
    fleet.rotate("farm")
    trust = fleet.enrol("b", "farm").trust(CRYPTO)
    assert trust.revoked == {a.node}
    assert trust.group_keys.keys() == fleet.trust_of("farm").group_keys.keys()


def test_new_revoke_keys_keep_out_who_was_out(fleet: Fleet) -> None:
    a = fleet.enrol("a", "farm")
    fleet.revoke("farm", [a.node], "stolen")
    fleet.change_role("revoke", 1, 1)
    assert fleet.enrol("b", "farm").trust(CRYPTO).revoked == {a.node}


def test_the_root_itself_changes_by_signatures_of_both(fleet: Fleet) -> None:
    first = fleet.roots()[0]
    fleet.change_role("root", 1, 1)
    fleet.change_role("release", 1, 2, stolen=True)
    assert (fleet.root().version, fleet.root().epoch) == (3, 2)
    Trust("farm", fleet.roots(), CRYPTO)
    with pytest.raises(IdentityError):
        Trust("farm", [first, fleet.roots()[2]], CRYPTO)  # A link is missing.


def test_keys_at_their_keepers_are_asked_for_by_name_and_given_by_path(fleet: Fleet, tmp_path: Path) -> None:
    for number in (1, 2):
        (fleet.folder / "keys" / f"root-{number}.key").rename(tmp_path / f"stick-{number}.key")
    with pytest.raises(FleetError, match=r"takes 2 signatures and 1 of its keys.*--key FILE \(missing: [0-9a-f]{8}, "):
        fleet.change_role("enrol", 1, 1)
    assert not (fleet.folder / "roots" / "0002.root").exists()
    assert len(list((fleet.folder / "keys").glob("enrol-*"))) == 1
    Fleet(fleet.folder, [tmp_path / "stick-1.key"]).change_role("enrol", 1, 1)
    assert Fleet(fleet.folder).root().version == 2


@pytest.mark.parametrize("numbers", [(0, 1), (2, 1), (1, 17), (1, 0)])
def test_numbers_that_cannot_sign_are_refused(fleet: Fleet, numbers: tuple[int, int]) -> None:
    with pytest.raises(FleetError, match="cannot sign"):
        fleet.change_role("release", *numbers)


def test_names_that_could_leave_the_folder_are_refused(fleet: Fleet) -> None:
    fleet.enrol("a", "farm")
    before = sorted(fleet.folder.rglob("*"))
    for name in ("../x", "a/b", "", "x" * 65, ".", "..", "a+b"):
        with pytest.raises(NameRefused, match="cannot name a swarm"):
            fleet.enrol("a", name)
        with pytest.raises(NameRefused, match="cannot name a node"):
            fleet.enrol(name, "farm")
        with pytest.raises(NameRefused, match="cannot name a node"):
            open_dev_fleet(fleet.folder.parent / "dev", name)
    with pytest.raises(FleetError, match="cannot name a role"):
        fleet.change_role("../../x", 1, 1)
    assert sorted(fleet.folder.rglob("*")) == before
    assert not (fleet.folder.parent / "dev").exists()


def test_damage_is_named(fleet: Fleet, tmp_path: Path) -> None:
    fleet.enrol("a", "farm")
    (fleet.folder / "swarms" / "farm" / "revoke-1").write_bytes(b"nonsense")
    with pytest.raises(FleetError, match="does not hold"):
        fleet.enrol("b", "farm")
    key = tmp_path / "k.key"
    write_role_key(key, RoleKey("enrol", bytes(32)))
    assert read_role_key(key) == RoleKey("enrol", bytes(32))
    assert "00" * 8 not in repr(read_role_key(key))
    with pytest.raises(FleetError, match="exists already"):
        write_role_key(key, RoleKey("enrol", bytes(32)))
    for damaged in (b"", b"x", key.read_bytes()[:-5], key.read_bytes().replace(b"seed 00", b"seed zz")):
        key.write_bytes(damaged)
        with pytest.raises(FleetError, match="no role key"):
            read_role_key(key)
    key.chmod(0o644)
    with pytest.raises(IdentityFileError, match="chmod 600"):
        read_role_key(key)
    with pytest.raises(FleetError, match="no fleet in"):
        Fleet(tmp_path / "nowhere")


def test_a_development_fleet_can_do_all_of_it(tmp_path: Path) -> None:
    a = open_dev_fleet(tmp_path, "a")
    assert (tmp_path / FLEET_SECRET_FILE).exists()
    fleet = Fleet(tmp_path)
    assert fleet.is_dev
    assert fleet.enrol("a", "dev").node == a.node
    fleet.rotate("dev")
    fleet.revoke("dev", fleet.find_node("dev", "a"), "test")
    trust = open_dev_fleet(tmp_path, "b").trust(CRYPTO)
    taken = [kind for kind, statement in fleet.statements("dev") if trust.add(kind, statement)]
    assert sorted(taken) == ["group", "revoke"]
    assert trust.revoked == {a.node}
    assert dev_fleet_secret(tmp_path)


def test_the_command_line_from_nothing_to_a_revoked_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = str(tmp_path / "fleet")
    assert main(["keys", "root", home, "--name", "acme", "--role", "root=1/1"]) == 0
    assert main(["keys", "enrol", home, "drone-1", "--swarm", "farm", "--out", str(tmp_path / "d1")]) == 0
    assert main(["keys", "enrol", home, "drone-2", "--swarm", "farm", "--out", str(tmp_path / "d2")]) == 0
    assert "`swarmd run --identity DIR`" in capsys.readouterr().out
    assert (
        main(["keys", "enrol", home, "gw-1", "--swarm", "farm", "--role", "gateway", "--out", str(tmp_path / "g1")])
        == 0
    )
    assert "`swarmd gateway --identity DIR`" in capsys.readouterr().out
    assert main(["keys", "enrol", home, "drone-2", "--swarm", "farm", "--out", str(tmp_path / "d2")]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["keys", "rotate", home, "--swarm", "farm"]) == 0
    assert main(["keys", "role", home, "release", "--need", "2", "--keys", "3"]) == 0
    assert main(["keys", "revoke", home, "drone-1", "--swarm", "farm", "--reason", "stolen"]) == 0
    out = capsys.readouterr().out
    assert "swarmd keys push" in out
    assert load_identity(tmp_path / "d1" / IDENTITY_FILE).node.hex() in out
    assert main(["keys", "show", home, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {node["name"]: node["revoked"] for node in shown["nodes"]} == {
        "drone-1": True,
        "drone-2": False,
        "gw-1": False,
    }
    assert shown["root"] == 2
    assert main(["keys", "show", home]) == 0
    assert "drone-2" in capsys.readouterr().out
    assert main(["keys", "root", home, "--name", "x", "--role", "root=nonsense"]) == 1
    assert "ROLE=NEED/KEYS" in capsys.readouterr().err
    assert main(["keys", "push", home, "--swarm", "farm", "--control", str(tmp_path / "none")]) == 3


def test_no_secret_reaches_the_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = str(tmp_path / "fleet")
    main(["keys", "root", home, "--name", "acme"])
    main(["keys", "enrol", home, "a", "--swarm", "farm", "--out", str(tmp_path / "a")])
    main(["keys", "rotate", home, "--swarm", "farm"])
    main(["keys", "show", home])
    said = "".join(capsys.readouterr())
    seeds = [read_role_key(path).seed.hex() for path in (tmp_path / "fleet" / "keys").iterdir()]
    assert not any(seed in said for seed in seeds)
    assert load_identity(tmp_path / "a").seed.hex() not in said


def test_a_new_epoch_keeps_the_removals_that_the_folder_or_the_operator_names(fleet: Fleet, tmp_path: Path) -> None:
    """The floors and revocations of models too: what is right is named, all else by the stolen keys is void."""
    floor, revoked, poisoned = (
        decode_envelope(sign_statement(kind, payload.payload(), fleet.seeds(role), CRYPTO))
        for kind, role, payload in (
            ("floor", "floor", Floor("person", 1, 2)),
            ("model-revoke", "revoke", Revoke("person", 1, bytes(32))),
            ("floor", "floor", Floor("person", 1, 1 << 40)),
        )
    )
    (fleet.folder / "statements").mkdir()
    (fleet.folder / "statements" / "floor-1.swm").write_bytes(floor.encode())
    elsewhere = tmp_path / "revoked.swm"
    elsewhere.write_bytes(revoked.encode())
    fleet.change_role("floor", 2, 3, stolen=True, keep=[elsewhere])
    fleet.change_role("revoke", 1, 2, keep=[elsewhere])
    chain = fleet.trust_of("farm").chain
    assert [chain.counts(chain.verified(one)) for one in (floor, revoked, poisoned)] == [True, True, False]
    elsewhere.write_bytes(poisoned.encode())
    with pytest.raises(FleetError, match="holds no statement that counts"):
        fleet.change_role("floor", 2, 3, keep=[elsewhere])
