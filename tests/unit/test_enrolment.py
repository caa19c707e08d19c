"""A key made on the device: its identity holds, an enrolment fits one key only, and no seed is lost or overwritten."""

from pathlib import Path

import pytest

from swarmd.cli.main import main
from swarmd.identity.desk import prepare_certificate, submit
from swarmd.identity.enrolment import EnrolmentError, decode_enrolment, install, make_enrolment, new_node_key
from swarmd.identity.files import load_identity
from swarmd.identity.fleet import Fleet, create_fleet
from swarmd.identity.names import NameRefused
from swarmd.identity.officers import PublicHalf
from swarmd.identity.prepared import add_signature
from swarmd.identity.role_keys import read_role_key
from swarmd.identity.signers import SeedSigner


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = create_fleet(tmp_path / "fleet", "acme", {"root": (1, 1), "enrol": (1, 1), "revoke": (1, 1)})
    fleet.enrol("drone-1", "farm")
    return fleet


def certify(fleet: Fleet, half: PublicHalf, name: str = "") -> None:
    key = read_role_key(fleet.folder / "keys" / "enrol-1.key")
    prepared = prepare_certificate(fleet, "farm", name or half.name, half.public)
    submit(fleet.folder, add_signature(prepared, SeedSigner(PublicHalf(key.public, "enrol-1"), key.seed)))


def test_a_device_joins_with_a_key_that_only_it_has(fleet: Fleet, tmp_path: Path) -> None:
    half = new_node_key(tmp_path / "d2", "drone-2")
    seed = (tmp_path / "d2" / "node.seed").read_bytes()[-32:]
    certify(fleet, half)
    enrolment = make_enrolment(fleet, "farm", "drone-2")
    assert seed not in enrolment
    identity = install(tmp_path / "d2", enrolment)
    assert load_identity(tmp_path / "d2") == identity
    assert (identity.name, identity.seed) == ("drone-2", seed)
    assert not (tmp_path / "d2" / "node.seed").exists()
    assert all(seed not in path.read_bytes() for path in fleet.folder.rglob("*") if path.is_file())
    assert set(identity.group_keys) == set(decode_enrolment(enrolment).group_keys)


def test_an_enrolment_fits_one_key_only(fleet: Fleet, tmp_path: Path) -> None:
    certify(fleet, new_node_key(tmp_path / "d2", "drone-2"))
    new_node_key(tmp_path / "d3", "drone-3")
    with pytest.raises(EnrolmentError, match="does not fit this device"):
        install(tmp_path / "d3", make_enrolment(fleet, "farm", "drone-2"))
    assert (tmp_path / "d3" / "node.seed").exists()
    assert not (tmp_path / "d3" / "node.identity").exists()


def test_the_newest_certificate_of_a_name_is_given(fleet: Fleet, tmp_path: Path) -> None:
    certify(fleet, new_node_key(tmp_path / "old", "drone-2"))
    certify(fleet, new_node_key(tmp_path / "new", "drone-2"))
    assert install(tmp_path / "new", make_enrolment(fleet, "farm", "drone-2")).name == "drone-2"
    with pytest.raises(EnrolmentError):
        install(tmp_path / "old", make_enrolment(fleet, "farm", "drone-2"))


def test_a_newcomer_knows_who_is_out(fleet: Fleet, tmp_path: Path) -> None:
    fleet.revoke("farm", fleet.find_node("farm", "drone-1"), "stolen")
    certify(fleet, new_node_key(tmp_path / "d2", "drone-2"))
    assert len(install(tmp_path / "d2", make_enrolment(fleet, "farm", "drone-2")).revocations) == 1


def test_keys_are_never_overwritten_and_slips_are_named(fleet: Fleet, tmp_path: Path) -> None:
    new_node_key(tmp_path / "d2", "drone-2")
    with pytest.raises(EnrolmentError, match="exists already"):
        new_node_key(tmp_path / "d2", "drone-2")
    with pytest.raises(NameRefused):
        new_node_key(tmp_path / "d4", "../x")
    with pytest.raises(EnrolmentError, match="nobody is enrolled as 'drone-2'"):
        make_enrolment(fleet, "farm", "drone-2")
    for junk in (b"", b"junk", b"swarmd-enrolment-1\n", b"swarmd-enrolment-1\n\xc1"):
        with pytest.raises(EnrolmentError):
            install(tmp_path / "d2", junk)


def test_the_command_line(fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "node", "new", str(tmp_path / "d2"), "--name", "drone-2"]) == 0
    public, home = str(tmp_path / "d2" / "drone-2.pub"), str(fleet.folder)
    words = ["keys", "enrol", home, "drone-2", "--swarm", "farm", "--public", public, "--out", str(tmp_path / "out")]
    assert main(words) == 0
    enrolment = tmp_path / "out" / "drone-2.enrolment"
    assert enrolment.stat().st_mode & 0o777 == 0o600
    assert main(["keys", "node", "install", str(tmp_path / "d2"), str(enrolment)]) == 0
    assert load_identity(tmp_path / "d2").name == "drone-2"
    assert main(words) == 1
    assert "exists already" in capsys.readouterr().err


def test_an_enrolment_of_a_revoked_node_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    certify(fleet, new_node_key(tmp_path / "d2", "drone-2"))
    fleet.revoke("farm", fleet.find_node("farm", "drone-2"), "stolen")
    with pytest.raises(EnrolmentError, match=r"'drone-2' is revoked .* node new"):
        make_enrolment(fleet, "farm", "drone-2")
    certify(fleet, new_node_key(tmp_path / "new", "drone-2"))
    assert install(tmp_path / "new", make_enrolment(fleet, "farm", "drone-2")).name == "drone-2"


def test_a_folder_that_cannot_be_made_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["keys", "node", "new", str(tmp_path / "file" / "d1"), "--name", "drone-1"]) == 1
    assert f"swarmd keys: {tmp_path / 'file' / 'd1'}: Not a directory" in capsys.readouterr().err
