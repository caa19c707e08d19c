"""Beside real daemons of a real fleet: a release on the board, a halt prepared there, signed, and followed."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette", reason="no starlette here (pip install 'swarmd[ground]')")

from swarmd.identity.files import IDENTITY_FILE, write_secret_file
from swarmd.identity.fleet import create_fleet
from swarmd.identity.role_keys import read_role_key
from swarmd_protocols.crypto import NaClCrypto
from swarmd_protocols.releases.statements import BundleFile, Release
from swarmd_protocols.releases.stores import describe
from swarmd_protocols.trust.envelopes import sign_statement
from tests.support.daemons import PlainDaemon, Running, wait_for

pytestmark = pytest.mark.slow
ROLES = {"root": (1, 1), "enrol": (1, 1), "revoke": (2, 2), "release": (1, 1)}


class Laptop(Running):
    """One `swarmd ground` of an enrolled laptop."""

    def __init__(self, folder: Path, identity: Path, join: str) -> None:
        super().__init__("laptop", folder / "control", folder / "out", folder / "err")
        folder.mkdir()
        self.spawn([
            sys.executable, "-m", "swarmd", "ground", "--page", "127.0.0.1:0", "--identity", str(identity), "--listen",
            "127.0.0.1:0", "--state", str(folder / "state"), "--control", str(self.control), "--join", join,
        ])  # fmt: skip
        wait_for(lambda: "http://" in self.out.read_text() or not self.alive, "the page", seen=self.log)
        self.url = self.out.read_text().split()[-1]

    def get(self, path: str) -> Any:
        import urllib.request

        with urllib.request.urlopen(f"{self.url}api/v1/{path}", timeout=60) as answer:
            return json.loads(answer.read())

    def rows(self, kind: str) -> list[Any]:
        found: list[Any] = self.get("snapshot")["rows"][kind]
        return found


def cli(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "swarmd", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def test_a_halt_is_prepared_on_the_page_signed_at_two_desks_and_followed(tmp_path: Path) -> None:
    fleet = create_fleet(tmp_path / "fleet", "acme", ROLES)
    homes = {name: tmp_path / f"{name}-id" for name in ("drone-1", "laptop")}
    for name, home in homes.items():
        home.mkdir()
        write_secret_file(home / IDENTITY_FILE, fleet.enrol(name, "farm").to_bytes())
    arguments = ["--identity", str(homes["drone-1"]), "--listen", "127.0.0.1:0"]
    drone = PlainDaemon("drone-1", tmp_path / "drone-1", arguments).start()
    laptop = Laptop(tmp_path / "laptop", homes["laptop"], drone.address)
    try:
        blob, _ = describe(b"a model" * 1_000)
        release = Release("eye", 1, 1, b"", (BundleFile("model.tflite", "model", blob),), issued_at_s=int(time.time()))
        seed = read_role_key(fleet.folder / "keys" / "release-1.key").seed
        signed = sign_statement("release", release.payload(), [seed], NaClCrypto())
        drone.ask("model_publish", envelopes=[signed.hex()], roots=[])
        (shown,) = wait_for(lambda: laptop.rows("release"), "the release on the board", seen=laptop.log)
        assert (shown["model"], shown["version"], shown["state"]) == ("eye", 1, "stage 1 of 3")
        assert shown["issued_s"] == release.issued_at_s

        asked = {"what": "halt", "model": "eye", "release": shown["digest"], "reason": "it sees ghosts"}
        made = laptop.get(f"releases/prepared?{urlencode(asked)}")
        assert made["need"] == 2
        desks = [tmp_path / f"{made['name']}.{number}" for number in (1, 2)]
        for number, desk in enumerate(desks, 1):
            desk.write_text(made["text"])
            key = fleet.folder / "keys" / f"revoke-{number}.key"
            told = cli("keys", "sign", str(desk), "--key", str(key), "--yes")
            assert "it sees ghosts" in told
        files = [str(desk) for desk in desks]
        cli("keys", "submit", *files, "--fleet", str(fleet.folder), "--control", str(drone.control))
        wait_for(lambda: laptop.rows("release")[0]["state"] == "halted", "the halt on the board", seen=laptop.log)
        (statement,) = laptop.rows("release")[0]["statements"]
        assert (statement["kind"], statement["reason"]) == (made["kind"], "it sees ghosts")
        assert statement["issued_s"] == made["issued_s"]
        assert sorted(statement["signers"]) == made["keys"]
        halted = "eye 1 stage 1 of 3 → halted"
        wait_for(
            lambda: any(mark["text"] == halted for mark in laptop.get("timeline")["marks"]),
            "the halt on the timeline",
            seen=laptop.log,
        )
    finally:
        laptop.close()
        drone.close()
