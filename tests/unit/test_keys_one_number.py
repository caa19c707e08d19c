"""Two desks prepare a certificate of one name within one second: one counts, alike everywhere; who is late hears it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from swarmd.identity.desk import certificate_path, node_rows, prepare_certificate, prepare_revocation, submit
from swarmd.identity.enrolment import decode_enrolment, make_enrolment
from swarmd.identity.fleet import Fleet, create_fleet
from swarmd.identity.officers import PublicHalf
from swarmd.identity.prepared import Prepared, PreparedError, add_signature, statement_of
from swarmd.identity.role_keys import FleetError, read_role_key, write_public
from swarmd.identity.signers import SeedSigner
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.trust.identity import read_certificate

NOW_S = 4_000_000_000


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr("swarmd.identity.fleet.time", SimpleNamespace(time=lambda: NOW_S))
    fleet = create_fleet(tmp_path / "fleet", "acme")
    fleet.enrol("other", "farm")
    return fleet


def public(number: int) -> bytes:
    return NaClCrypto().public_key(bytes([number]) * 32)


def signed(fleet: Fleet, prepared: Prepared, role: str = "enrol") -> Prepared:
    key = read_role_key(fleet.folder / "keys" / f"{role}-1.key")
    return add_signature(prepared, SeedSigner(PublicHalf(key.public, f"{role}-1"), key.seed))


def prepared(fleet: Fleet, name: str, number: int) -> Prepared:
    return signed(fleet, prepare_certificate(fleet, "farm", name, public(number)))


def test_of_two_of_one_number_the_folder_names_the_one_that_every_device_takes(fleet: Fleet) -> None:
    """Each desk had a copy of the folder, and the copies were put together."""
    for number in range(1, 25, 2):
        name = f"drone-{number}"
        for one in [prepared(fleet, name, number), prepared(fleet, name, number + 1)]:
            statement = statement_of(one, fleet.root())
            write_public(certificate_path(fleet.folder, read_certificate(statement), one.payload), statement)
        trust = fleet.trust_of("farm")
        in_force = [node for node in map(node_id_of, map(public, (number, number + 1))) if trust.certified(node)]
        assert len(in_force) == 1
        assert [one.node for one in fleet.nodes("farm") if one.name == name] == in_force
        given = read_certificate(decode_enrolment(make_enrolment(fleet, "farm", name)).certificate)
        assert given.node == in_force[0], "the device would be shut out by all others"
        states = {row["node"]: row["state"] for row in node_rows(fleet, "farm") if row["name"] == name}
        assert [node for node, state in states.items() if state == "in force"] == [in_force[0].hex()]


@pytest.mark.parametrize("late_s", [0, 5])
def test_what_another_desk_was_faster_with_is_refused(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, late_s: int
) -> None:
    """Its number is taken, or lower than that of what came meanwhile: it would be void, or void the other, unsaid."""
    for number in range(1, 13, 2):
        name = f"drone-{number}"
        late = prepared(fleet, name, number)
        with monkeypatch.context() as patched:
            patched.setattr("swarmd.identity.fleet.time", SimpleNamespace(time=lambda: NOW_S + late_s))
            first = prepared(fleet, name, number + 1)
        held = submit(fleet.folder, first)
        files = sorted(fleet.folder.rglob("*"))
        with pytest.raises(PreparedError, match=f"another certificate of 'drone-{number}', from another desk"):
            submit(fleet.folder, late)
        assert sorted(fleet.folder.rglob("*")) == files
        assert not submit(fleet.folder, first).is_new, "the same once more harms nobody"
        anew = prepared(fleet, name, number)
        assert submit(fleet.folder, anew).is_new
        assert not submit(fleet.folder, first).is_new
        assert fleet.trust_of("farm").certified(NodeId(node_id_of(public(number)))) is not None
        assert held.path.exists()


def test_a_certificate_of_who_was_shut_out_meanwhile_is_refused(fleet: Fleet) -> None:
    submit(fleet.folder, prepared(fleet, "drone-1", 1))
    late = prepared(fleet, "drone-1", 1)
    node = node_id_of(public(1))
    submit(fleet.folder, signed(fleet, prepare_revocation(fleet, "farm", [node], "stolen"), "revoke"))
    with pytest.raises(FleetError, match="no node would take it: node 'drone-1' is revoked: stolen"):
        submit(fleet.folder, late)
