"""What happened yesterday, asked at a node that was not there: real daemons, a SIGKILL, a halt, a key rotation."""

import json
import os
import signal
import subprocess
import sys
import threading
from urllib.request import urlopen

import pytest

from swarmd.cli.main import main
from swarmd.demo.release import factory_bundle
from swarmd.identity.files import IDENTITY_FILE, write_secret_file
from swarmd.identity.fleet import create_fleet
from tests.support.bridge_world import Broker, mosquitto_binary
from tests.support.daemons import PATIENCE_S, Daemon, PlainDaemon, wait_for
from tests.support.exclusive import own_port

pytestmark = pytest.mark.slow


def events(daemon, *kinds, **query):
    return daemon.ask("events", kinds=list(kinds), **query)["events"]


def told(daemon, kind, subject=""):
    """(origin, subject, reason) of all such events that a daemon knows."""
    return [
        (row["origin"], row["subject"], row["reason"])
        for row in events(daemon, kind)
        if not subject or row["subject"] == subject
    ]


def seeds_of(daemon):
    return str(daemon.status()["address"])


def cli(daemon, *words):
    command = [sys.executable, "-m", "swarmd", *words, "--control", str(daemon.control)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def swarm(tmp_path):
    started = []

    def start(name, *flags):
        join = seeds_of(started[0]) if started else ""
        daemon = Daemon(tmp_path, name, "--no-eye", *flags, join=join)
        started.append(daemon)
        return daemon.up()

    yield start
    for daemon in started:
        daemon.close()


def test_a_late_joiner_reads_of_a_kill_and_its_return(swarm):
    a, b, c = swarm("a"), swarm("b"), swarm("c")
    wait_for(lambda: all(len(one.members()) == 3 for one in (a, b, c)), "three members")
    c.kill(signal.SIGKILL)
    wait_for(lambda: told(a, "failed", "c") and told(b, "failed", "c"), "the failure to be written down")
    wait_for(lambda: any("failed" in line and '"c"' in line for line in a.log().splitlines()), "the log to say it too")
    late = swarm("late")
    rows = wait_for(lambda: told(late, "failed", "c"), "the newcomer to know of it", seen=late.log)
    assert {origin for origin, _, _ in rows} <= {"a", "b"}
    assert "late" not in {origin for origin, _, _ in rows}

    c.start()
    c.up()
    wait_for(lambda: told(late, "returned", "c") or told(late, "joined", "c"), "the return")
    wait_for(
        lambda: any("without a good-bye" in reason for _, _, reason in told(late, "started", "c")),
        "its own word of how its last life ended",
    )
    assert a.kill(signal.SIGTERM) == 0
    a.start()
    a.up()
    wait_for(lambda: any("clean" in reason for _, _, reason in told(late, "started", "a")), "a clean start")


def test_commands_and_user_events_are_visible_everywhere(swarm):
    a, b = swarm("a"), swarm("b")
    wait_for(lambda: len(b.members()) == 2, "two members")
    lines = []
    follow = subprocess.Popen(
        [sys.executable, "-m", "swarmd", "events", "-f", "--json", "--control", str(b.control)],
        stdout=subprocess.PIPE,
        text=True,
    )
    reader = threading.Thread(target=lambda: lines.extend(follow.stdout), daemon=True)
    reader.start()
    try:
        wait_for(lambda: lines, "the first rows")
        a.ask("event", name="land-now", payload="storm \x1b[31m")
        wait_for(lambda: any("land-now" in line for line in lines), "the follower to see it")
    finally:
        follow.kill()
        follow.wait()
        reader.join(PATIENCE_S)
        follow.stdout.close()
    row = next(json.loads(line) for line in lines if "land-now" in line)
    assert (row["kind"], row["reason"], row["evidence"]) == ("user-event", "said by a", "storm ?[31m")
    (command,) = events(a, "command")
    assert command["subject"] == "event"
    assert "control socket" in command["reason"]
    assert "land-now" in command["evidence"]
    shown = cli(b, "events", "--since", "1h", "--kind", "user-event")
    assert shown.returncode == 0
    assert "land-now" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert cli(b, "events", "--kind", "no-such").returncode == 1
    assert cli(b, "events", "--since", "yesterday").returncode == 1


def test_a_failed_member_is_dismissed_everywhere_until_it_returns(swarm):
    a, b, c = swarm("a"), swarm("b"), swarm("c")
    wait_for(lambda: all(len(one.members()) == 3 for one in (a, b, c)), "three members")
    refused = cli(a, "forget", "c")
    assert refused.returncode == 1
    assert "not failed" in refused.stderr
    c.kill(signal.SIGKILL)
    wait_for(lambda: b.members().get("c") == a.members().get("c") == "failed", "the failure")
    assert cli(a, "forget", "c").returncode == 0
    wait_for(lambda: "c" not in b.members() and "c" not in a.members(), "it to be off the lists")
    assert "c" not in b.status()["members"]
    assert b.ask("members")["dismissed"] == [{"name": "c", "by": "a"}]
    wait_for(lambda: told(b, "dismissed", "c"), "b to know who dismissed it")
    c.start()
    c.up()
    wait_for(lambda: b.members().get("c") == a.members().get("c") == "alive", "its return")


def test_what_stands_is_in_status_health_metrics_and_doctor_until_it_is_solved(swarm, tmp_path):
    """A broker that does not answer: raised, said everywhere with its remedy, an event; over when it answers."""
    port = own_port()
    config = tmp_path / "mqtt.toml"
    config.write_text(f"[mqtt]\nenabled = true\nport = {port}\n")
    a = swarm("a", "--config", str(config), "--http", "127.0.0.1:0")
    wait_for(lambda: a.status()["alerts"], "the alert")
    (alert,) = a.status()["alerts"]
    assert (alert["code"], alert["subject"], alert["level"]) == ("broker-lost", f"127.0.0.1:{port}", "warning")
    assert alert["remedy"]
    shown = cli(a, "status")
    assert "ALERT" in shown.stdout
    assert alert["remedy"] in shown.stdout
    address = a.status()["http"]
    health = json.loads(urlopen(f"http://{address}/healthz").read())
    assert health["healthy"], "it works on; only an error makes it unhealthy"
    assert [one["code"] for one in health["alerts"]] == ["broker-lost"]
    metrics = urlopen(f"http://{address}/metrics").read().decode()
    assert 'swarmd_alert{code="broker-lost"} 1' in metrics
    assert 'swarmd_alert{code="clock-wrong"} 0' in metrics
    doctor = ["doctor", "--dev-fleet", str(tmp_path / "fleet"), "--name", "a", "--control", str(a.control), "--json"]
    done = subprocess.run([sys.executable, "-m", "swarmd", *doctor], capture_output=True, text=True, timeout=60)
    found = [row for row in json.loads(done.stdout)["findings"] if row["check"] == "alert"]
    assert [row["verdict"] for row in found] == ["warn"]
    assert "broker-lost" in found[0]["found"]
    (raised,) = wait_for(lambda: events(a, "alert-raised"), "the alert to be written down")
    assert raised["subject"] == f"broker-lost 127.0.0.1:{port}"
    if mosquitto_binary() is None:
        return
    broker = Broker(tmp_path, port=port)
    broker.start()
    try:
        wait_for(lambda: not a.status()["alerts"], "it to be over")
        (cleared,) = wait_for(lambda: events(a, "alert-cleared"), "the end to be written down")
        assert cleared["reason"] == "connected again"
        wait_for(lambda: "connected again" in a.log(), "the log to say it too")
    finally:
        broker.stop()


def test_a_cloned_identity_stands_at_both_that_use_it(swarm, tmp_path):
    a, b = swarm("a"), swarm("b")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "fleet").symlink_to(tmp_path / "fleet")
    clone = Daemon(elsewhere, "b", "--no-eye", join=seeds_of(a))
    try:
        clone.up()
        for one in (b, clone):
            wait_for(lambda one=one: "identity-cloned" in alerts(one), "the alert", seen=one.log)
        assert "identity-cloned" not in alerts(a)
        wait_for(lambda: any("identity-cloned" in subject for _, subject, _ in told(b, "alert-raised")), "an event")
    finally:
        clone.close()


def alerts(daemon):
    return [alert["code"] for alert in daemon.status()["alerts"]]


def test_the_journal_gets_priorities_from_a_daemon_of_its_own(tmp_path):
    """As systemd starts it: `JOURNAL_STREAM` names what standard error is."""
    err = tmp_path / "stream"
    with err.open("ab") as stream:
        status = os.fstat(stream.fileno())
        flags = ["--dev-fleet", str(tmp_path / "fleet"), "--name", "a", "--no-eye", "--http", "off"]
        flags += ["--state", str(tmp_path / "a"), "--control", str(tmp_path / "a.sock"), "--listen", "127.0.0.1:0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "swarmd", "run", *flags],
            stderr=stream,
            env={**os.environ, "JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"},
        )
    try:
        wait_for(lambda: "dev_fleet" in err.read_text(), "the daemon to speak", seen=err.read_text)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    lines = err.read_text().splitlines()
    assert all(line[0] == "<" and line[2] == ">" for line in lines), lines
    assert any(line.startswith("<4>") and "dev_fleet" in line for line in lines), "journalctl -p warning finds it"


def test_a_damaged_file_is_said_and_the_daemon_runs(swarm):
    a = swarm("a")
    wait_for(lambda: events(a, "started"), "the first event to be on the disk")
    a.kill(signal.SIGKILL)
    path = a.folder / "a" / "events.sqlite"
    words = [sys.executable, "-m", "swarmd", "events", "--file", str(path)]
    read = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert "started" in read.stdout, "the file is read where no daemon runs; a kill takes nothing from it"
    for beside in path.parent.glob("events.sqlite-*"):
        beside.unlink()
    path.write_bytes(b"no database" * 1_000)
    read = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (read.returncode, "not a database" in read.stderr) == (1, True)
    a.start()
    a.up()
    assert any(row["subject"] == "events-damaged" for row in events(a, "alarm"))
    assert list(path.parent.glob("events.sqlite.corrupt-*"))


class Enrolled:
    """Daemons of a real fleet."""

    def __init__(self, folder):
        self.folder = folder
        roles = {"root": (1, 1), "enrol": (1, 1), "revoke": (1, 1), "release": (1, 1)}
        self.fleet = create_fleet(folder / "fleet", "acme", roles)
        self.daemons = []

    def start(self, name, *flags):
        home = self.folder / name
        home.mkdir()
        write_secret_file(home / IDENTITY_FILE, self.fleet.enrol(name, "farm").to_bytes())
        arguments = ["--identity", str(home), "--listen", "127.0.0.1:0", *flags]
        daemon = PlainDaemon(name, home, arguments)
        if flags:
            daemon._command.remove("--no-eye")
        seeds = [self.daemons[0].address] if self.daemons else []
        self.daemons.append(daemon)
        return daemon.start(seeds)

    def key(self, name):
        return str(self.folder / "fleet" / "keys" / name)


@pytest.fixture
def enrolled(tmp_path):
    made = Enrolled(tmp_path)
    yield made
    for daemon in made.daemons:
        daemon.stop(signal.SIGKILL)


def publish(enrolled, daemon, folder):
    """Build, sign and publish a release of the zoo's small model at a daemon."""
    out = enrolled.folder / "pub"
    build = ["model", "build", str(folder), "-o", str(out), "--model", "eye", "--version", "1", "--swap-when", "any"]
    assert main([*build, "--fleet", str(enrolled.folder / "fleet"), "--rollout", "1,50,100", "--soak", "3600"]) == 0
    assert main(["model", "sign", str(out), "--key", enrolled.key("release-1.key")]) == 0
    assert main(["model", "publish", str(out), "--control", str(daemon.control)]) == 0
    return out


def test_show_a_newcomer_reads_of_a_kill_a_halt_and_a_key_rotation(enrolled):
    seeing = enrolled.start("seeing", "--source", "sim://farm?of=1&drone=1&laps=1000", "--model", "zoo:small-320")
    b, c = enrolled.start("b"), enrolled.start("c")
    wait_for(lambda: all(len(one.members()) == 3 for one in (seeing, b, c)), "three members")
    wait_for(lambda: all(told(one, "started", "c") for one in (seeing, b)), "c's word has left c")

    release = publish(enrolled, seeing, factory_bundle(enrolled.folder / "bundle", 1))
    halt = ["model", "halt", str(release), "--reason", "it sees ghosts", "--key", enrolled.key("revoke-1.key")]
    halt += ["-o", str(enrolled.folder / "halt.swm"), "--publish", "--control", str(seeing.control)]
    assert main(halt) == 0
    wait_for(lambda: told(seeing, "release-halted"), "the halt", seen=seeing.log)
    wait_for(lambda: "release-halted" in alerts(seeing), "the alert")

    c.stop(signal.SIGKILL)
    rotate = ["keys", "rotate", str(enrolled.folder / "fleet"), "--swarm", "farm", "--control", str(b.control)]
    assert main(rotate) == 0
    wait_for(lambda: told(b, "failed", "c") and told(b, "group-key"), "the kill and the new key")

    late = enrolled.start("late")
    wait_for(
        lambda: all(
            told(late, *one) for one in (("failed", "c"), ("release-halted",), ("group-key",), ("started", "c"))
        ),
        "the newcomer to know all four",
        seen=lambda: [(row["origin"], row["kind"], row["subject"]) for row in events(late)],
    )
    shown = cli(late, "events", "--since", "1h")
    assert shown.returncode == 0
    for words in (
        ("seeing", "release-halted", "eye 1", "it sees ghosts"),
        ("failed", "c"),
        ("group-key", "group key"),
        ("c  ", "started"),
    ):
        assert any(all(word in line for word in words) for line in shown.stdout.splitlines()), shown.stdout
    commands = [row["subject"] for row in events(seeing, "command")]
    assert commands.count("model_publish") >= 2
    assert events(b, "command")[-1]["subject"] == "trust"
