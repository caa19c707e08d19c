"""Real daemons on loopback: they form a swarm, agree, die, come back, and say what is wrong."""

import json
import resource
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import PATIENCE_S, Start, alive_members, digests, wait_for


def seen(label: str, east_m: float, track: str) -> dict[str, object]:
    return {
        "label": label, "score": 0.9, "east_m": east_m, "north_m": 0.0, "covariance_m2": [0.01, 0.0, 0.01],
        "track": track, "event": "new",
    }  # fmt: skip


def test_three_daemons_meet_agree_and_say_good_bye(start: Start) -> None:
    a = start("a", "--no-eye").up()
    address = a.status()["address"]
    b = start("b", "--no-eye", join=address)
    c = start("c", "--no-eye", join=address)
    wait_for(lambda: all(alive_members(d) == 3 for d in (a, b, c)), "three members everywhere")
    members = {row["name"]: row for row in b.ask("members")["members"]}
    assert set(members) == {"a", "b", "c"}
    assert members["a"]["address"] == address

    assert c.process is not None
    assert c.process.stdin is not None
    c.process.stdin.write(b'nonsense\n{"cmd": "event", "name": "deploy"}\n')
    c.process.stdin.flush()
    wait_for(
        lambda: all("deploy" in [e["subject"] for e in d.events()] for d in (a, b, c)), "the user event everywhere"
    )

    a.ask("observe", detections=[seen("hot-spot", 1.0, "x"), seen("hot-spot", 50.0, "y")])
    b.ask("observe", detections=[seen("hot-spot", 1.1, "z")])
    wait_for(lambda: all(d.status()["objects"] == 2 for d in (a, b, c)), "two objects everywhere")
    wait_for(lambda: len(digests(a, b, c)) == 1, "equal digests")
    named = [{row["id"] for row in d.ask("detections", form="geojson")["features"]} for d in (a, b, c)]
    assert named[0] == named[1] == named[2], "a sighting has one id, whoever is asked"
    near = next(row for row in c.ask("objects")["objects"] if row["east_m"] < 10)
    assert sorted(near["observers"]) == ["a", "b"]

    assert b.kill(signal.SIGTERM) == 0
    wait_for(lambda: a.status()["members"]["b"] == "left", "b's good-bye")
    words = [(e["event"], e["subject"]) for e in a.events()]
    assert words[0] == ("up", "a")
    assert ("join", "b") in words
    assert ("leave", "b") in words
    assert ("failed", "b") not in words
    assert not b.control.exists()


def test_the_command_line_reads_a_running_daemon(start: Start) -> None:
    a = start("a", "--no-eye", "--set", "node.origin=47.0,8.0").up()
    a.ask("observe", detections=[seen("hot-spot", 1.0, "x")])

    def cli(*arguments: str) -> str:
        command = [sys.executable, "-m", "swarmd", *arguments, "--control", str(a.control)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    assert json.loads(cli("status", "--json"))["node"] == "a"
    assert "a of swarm dev" in cli("status")
    assert "alive" in cli("members")
    (feature,) = json.loads(cli("objects", "--geojson"))["features"]
    assert feature["geometry"]["coordinates"] == pytest.approx([8.0 + 1 / 76_000, 47.0], abs=1e-5)
    assert cli("objects", "--csv").startswith("id,label,score,east_m")
    assert "hot-spot" in cli("detections")
    assert json.loads(cli("counters", "--json"))["own"]
    assert "control socket" in cli("topics")
    assert json.loads(cli("cells", "--json")) == {"cells": []}
    wrong = subprocess.run(
        [sys.executable, "-m", "swarmd", "eye", "stop", "--control", str(a.control)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert wrong.returncode == 1
    assert "runs no eye" in wrong.stderr


def test_a_killed_brain_comes_back_with_identity_higher_incarnation_and_its_detections(start: Start) -> None:
    a = start("a", "--no-eye").up()
    b = start("b", "--no-eye", join=a.status()["address"], listen="127.0.0.1:0").up()
    wait_for(lambda: alive_members(a) == alive_members(b) == 2, "two members")
    alone = start("alone", "--no-eye").up()
    for daemon in (b, alone):
        daemon.ask("observe", detections=[seen("hot-spot", float(i * 20), f"t{i}") for i in range(5)])
    before = b.status()
    old = next(row for row in a.ask("members")["members"] if row["name"] == "b")
    b.kill()
    alone.kill()
    wait_for(lambda: a.status()["members"]["b"] in ("failed", "degraded"), "b's failure to be noticed")
    b.start()
    alone.start()
    b.up()
    alone.up()
    wait_for(lambda: alive_members(a) == 2, "b's return")
    again = b.status()
    assert again["node_id"] == before["node_id"]
    new = next(row for row in a.ask("members")["members"] if row["name"] == "b")
    assert new["incarnation"] > old["incarnation"]
    assert again["state"]["incarnation"] > before["state"]["incarnation"]
    assert alone.status()["detections"] == 5  # Nobody could give them back: they come from its own journal.
    wait_for(lambda: len(digests(a, b)) == 1, "equal digests")
    assert a.status()["objects"] == b.status()["objects"] == 5


def test_a_corrupt_journal_is_moved_aside_and_the_swarm_gives_back_what_is_missing(
    start: Start, tmp_path: Path
) -> None:
    a = start("a", "--no-eye").up()
    b = start("b", "--no-eye", join=a.status()["address"]).up()
    wait_for(lambda: alive_members(a) == alive_members(b) == 2, "two members")
    b.ask("observe", detections=[seen("hot-spot", 3.0, "x")])
    wait_for(lambda: a.status()["objects"] == 1, "the object at a")
    b.kill()
    journal = tmp_path / "b" / "journal.sqlite"
    journal.write_bytes(b"\x00garbage" * 4096)
    journal.with_name("journal.sqlite-wal").unlink(missing_ok=True)
    b.start()
    b.up()
    assert b.status()["journal"]["moved_aside"]
    assert "journal_corrupt" in b.log()
    wait_for(lambda: b.status()["objects"] == 1, "the object to come back")
    b.ask("observe", detections=[seen("hot-spot", 40.0, "y")])
    wait_for(lambda: a.status()["objects"] == 2, "the new object at a")
    wait_for(lambda: len(digests(a, b)) == 1, "equal digests")
    assert a.status()["state"]["quarantined"] == 0


def test_a_full_disk_degrades_to_memory_says_so_and_heals(start: Start, tmp_path: Path) -> None:
    a = start("a", "--no-eye").up()
    b = start("b", "--no-eye", join=a.status()["address"]).up()
    wait_for(lambda: alive_members(a) == alive_members(b) == 2, "two members")
    assert b.process is not None
    # The kernel's file size limit refuses writes just as a full disk does, and needs no root.
    resource.prlimit(b.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    b.ask("observe", detections=[seen("hot-spot", 3.0, "x")])
    wait_for(lambda: b.status()["journal"]["degraded"], "the alarm")
    wait_for(lambda: a.status()["objects"] == 1, "the object at a, all the same")
    wait_for(lambda: "free some space" in b.log(), "the sentence in the log")
    resource.prlimit(b.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_for(lambda: not b.status()["journal"]["degraded"], "the disk to be used again")
    b.kill()
    with sqlite3.connect(tmp_path / "b" / "journal.sqlite") as journal:
        assert journal.execute("SELECT count(*) FROM records WHERE key >= x'73746174652f'").fetchone()[0] > 0
    journal.close()
    b.start()
    assert b.up().status()["objects"] == 1


def test_what_is_taken_already_is_named_and_exits_1(start: Start, tmp_path: Path) -> None:
    a = start("a", "--no-eye").up()
    address = a.status()["address"]

    def refused(*flags: str) -> str:
        base = [
            sys.executable,
            "-m",
            "swarmd",
            "run",
            "--dev-fleet",
            str(tmp_path / "fleet"),
            "--no-eye",
            "--http",
            "off",
        ]
        done = subprocess.run([*base, *flags], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        assert done.returncode == 1, done.stderr
        return done.stderr

    other = ["--name", "o", "--control", str(tmp_path / "o.sock"), "--state", str(tmp_path / "o")]
    assert address.rpartition(":")[2] in refused(*other, "--listen", address)
    assert "another daemon uses this directory" in refused(
        *other, "--listen", "127.0.0.1:0", "--state", str(tmp_path / "a")
    )
    assert "another daemon answers there" in refused(
        *other, "--listen", "127.0.0.1:0", "--control", str(a.control), "--state", str(tmp_path / "p")
    )
    assert "no place" not in refused("--name", "q", "--identity", str(tmp_path / "none"), "--set", "swarm.dev_fleet=")
    (tmp_path / "bad").mkdir(mode=0o700)
    key = tmp_path / "bad" / "node.identity"
    key.write_bytes(b"swarmd-identity-1\ngarbage")
    key.chmod(0o600)
    assert "damaged" in refused("--name", "q", "--identity", str(tmp_path / "bad"), "--set", "swarm.dev_fleet=")
    key.chmod(0o644)
    assert "chmod" in refused("--name", "q", "--identity", str(tmp_path / "bad"), "--set", "swarm.dev_fleet=")
    assert a.alive


def test_sighup_applies_what_it_can_and_says_what_it_cannot(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "s.toml"
    config.write_text('[dedup]\nradius_m = 5.0\n[log]\nformat = "json"\n')
    a = start("a", "--no-eye", "-c", str(config)).up()
    config.write_text('[dedup]\nradius_m = 6.0\n[log]\nformat = "text"\n')
    assert a.process is not None
    a.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reloaded" in a.log(), "the reload")
    assert "applied=['log.format']" in a.log()
    assert "needs_restart=['dedup.radius_m']" in a.log()
    config.write_text("[dedup]\nradius_m = -1\n")
    a.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "reload_refused" in a.log(), "the refusal")
    assert a.status()["node"] == "a"
