"""Reviews through real daemons: made by a command on one, shown by another in every outlet, revoked by a root."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import swarmd
from swarmd_protocols.crypto import NaClCrypto
from tests.support.daemons import Daemon, wait_for

pytestmark = pytest.mark.slow
THING = {"label": "hot-spot", "score": 0.9, "track": "x", "event": "new", "east_m": 3.0, "north_m": 4.0}


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "swarmd", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )


def done(*arguments: object) -> str:
    ended = command(*arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def shown(daemon: Daemon) -> list[dict[str, Any]]:
    return [row for row in daemon.ask("objects")["objects"] if row["reviews"]]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    first = Daemon(tmp_path, "drone-1", "--no-eye", "--set", "node.origin=48.0,11.0").up()
    second = Daemon(tmp_path, "laptop", "--no-eye", "--set", "node.origin=48.0,11.0", join=first.status()["address"])
    second.up()
    yield first, second
    for one in (first, second):
        one.close()


def reviewed(daemon: Daemon) -> list[str]:
    return sorted(row["reason"] for row in daemon.ask("events", kinds=["reviewed"])["events"])


def test_a_review_is_made_by_a_command_shown_everywhere_and_revoked(
    tmp_path: Path, pair: tuple[Daemon, Daemon]
) -> None:
    drone, laptop = pair
    fleet = tmp_path / "fleet"
    done("keys", "role", fleet, "operator", "--need", 1, "--keys", 2, "--control", laptop.control)
    key, other = sorted((fleet / "keys").glob("operator*"))
    drone.ask("observe", detections=[THING])
    thing = wait_for(lambda: laptop.ask("objects")["objects"], "the object")[0]
    said = done("review", thing["id"][:8], "relabel", "crack", "--key", key, "--control", laptop.control)
    assert "'crack'" in said
    done("review", thing["id"], "note", "=cmd|x", "--key", key, "--control", laptop.control)

    row = wait_for(lambda: [row for row in shown(drone) if len(row["reviews"]) == 2], "both at the drone")[0]
    for daemon in (drone, laptop):  # Each is an event, once, at every node that comes to know it.
        wait_for(lambda daemon=daemon: len(reviewed(daemon)) == 2, "two events", seen=daemon.log)
        assert reviewed(daemon) == sorted(
            f"{one['operator']}: {one['verdict']} {one['text']}".rstrip() for one in row["reviews"]
        )
    assert (row["label"], row["detected"], row["review"], row["tier"]) == (
        "crack",
        "hot-spot",
        "relabelled",
        "reviewed",
    )
    assert {(one["verdict"], one["text"]) for one in row["reviews"]} == {("relabel", "crack"), ("note", "=cmd|x")}
    assert "crack" in done("objects", "--control", drone.control)
    table = done("objects", "--csv", "--control", drone.control).splitlines()
    assert "relabel crack" in table[1]
    feature = json.loads(done("objects", "--geojson", "--control", drone.control))["features"][0]["properties"]
    assert (feature["review"], feature["tier"], len(feature["reviews"])) == ("relabelled", "reviewed", 2)

    # A program says the same with a key of its own, and reads what others said.
    node, crypto = swarmd.connect(drone.control), NaClCrypto()
    seed = bytes.fromhex(_seed(other))
    node.review(row["id"], "reject", public_key=crypto.public_key(seed), sign=lambda m: crypto.sign(seed, m), by="bob")
    read = wait_for(
        lambda: [one for one in swarmd.connect(laptop.control).objects() if one.review == "disputed"], "a dispute"
    )
    assert {(one.operator, one.verdict) for one in read[0].reviews} >= {("bob", "reject")}
    assert read[0].label == "hot-spot"

    # Another root without those keys takes all of it out of every view; who has no operator's key is told so.
    done("keys", "role", fleet, "operator", "--need", 1, "--keys", 1, "--control", laptop.control)
    wait_for(lambda: not shown(drone) and not shown(laptop), "the reviews are out", seen=lambda: str(shown(drone)))
    refused = command("review", row["id"], "confirm", "--key", key, "--control", drone.control)
    assert refused.returncode == 1
    assert "no operator's" in refused.stderr
    wrong = command("review", row["id"], "confirm", "--key", fleet / "keys" / "nothing", "--control", drone.control)
    assert wrong.returncode == 1
    unsaid = command("review", row["id"], "relabel", "--key", key, "--control", drone.control)
    assert unsaid.returncode == 1
    assert "relabel LABEL" in unsaid.stderr
    assert command("review", "ffff", "confirm", "--key", key, "--control", drone.control).returncode == 1


def _seed(path: Path) -> str:
    from swarmd.identity.role_keys import read_role_key

    return read_role_key(path).seed.hex()
