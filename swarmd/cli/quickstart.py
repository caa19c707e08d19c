"""`swarmd quickstart`: a first configuration by a few questions, checked on this device, and the commands that follow.

Every answer is checked by the reader of the daemon's own configuration before the next question; nothing is written
before all are given. `--set` answers a question beforehand, `--yes` takes the proposals for the rest.
"""

import argparse
import dataclasses
import json
import os
import shutil
import socket
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmd.errors import DaemonError

if TYPE_CHECKING:
    from swarmd.config.loading import Loaded

Texts = Mapping[str, str]
"""A key, "section.key", to what was answered."""

_FARM_SOURCE = "sim://farm"
_FARM_ORIGIN = "-18.8856864,-70.1124341"
"""Latitude and longitude of the rendered farm's own origin, degrees (`docs/world.md`)."""
_BROKER_WAIT_S = 2.0
"""Seconds until a broker that does not answer is named; one on a local network takes milliseconds."""
_COLUMNS = 110
_SCENARIO = {"swarm.nodes": "20", "swarm.seconds": "120", "radio.loss": "0.05"}


@dataclass(frozen=True, slots=True)
class Question:
    """One key of the configuration, and how a person is asked for it."""

    key: str
    text: str
    proposal: Callable[[Texts], str] = lambda _: ""


@dataclass(frozen=True, slots=True)
class Kind:
    """A sort of user: what is set without asking, what is asked, and what comes after."""

    title: str
    settings: Texts
    questions: tuple[Question, ...]
    steps: Callable[["Loaded"], Iterator[tuple[str, str]]]
    """Pairs of what a command is for and the command, after the daemon has been started."""


def _ros2(loaded: "Loaded") -> Iterator[tuple[str, str]]:
    domain = loaded.config.dds.domain
    prefix = f"ROS_DOMAIN_ID={domain} " if domain >= 0 else ""
    yield (
        "what it sees, as ROS 2 reads it",
        f"{prefix}ros2 topic echo /swarm/detections vision_msgs/msg/Detection3DArray",
    )
    from swarmd.bridges.ros2.names import token

    node = token(_node(loaded))
    yield "a detector node of your own feeds it", f"{prefix}ros2 topic info -v /{node}/detections_in"


def _mqtt(loaded: "Loaded") -> Iterator[tuple[str, str]]:
    mqtt = loaded.config.mqtt
    yield (
        "what it says, as a subscriber hears it",
        f"mosquitto_sub -V 5 -v -h {mqtt.host} -p {mqtt.port} -t '{mqtt.base}/#'",
    )
    if mqtt.homeassistant:
        yield "Home Assistant shows the node", "Settings, Devices & services, MQTT"


def _autopilot(loaded: "Loaded") -> Iterator[tuple[str, str]]:
    yield f"whether the autopilot is heard on {loaded.config.mavlink.connection}", "swarmd status"
    yield "what was found, on a map", "swarmd objects --geojson > objects.geojson"


KINDS: dict[str, Kind] = {
    "ros2": Kind(
        "a ROS 2 team: detections and objects as topics",
        {"dds.enabled": "true"},
        (Question("dds.domain", "ROS_DOMAIN_ID", lambda _: os.environ.get("ROS_DOMAIN_ID", "0")),),
        _ros2,
    ),
    "mqtt": Kind(
        "MQTT or Home Assistant: a broker hears what is found",
        {"mqtt.enabled": "true"},
        (
            Question("mqtt.host", "Broker's host", lambda _: "127.0.0.1"),
            Question("mqtt.port", "Broker's port", lambda _: "1883"),
            Question("mqtt.homeassistant", "Is Home Assistant there (true or false)", lambda _: "false"),
        ),
        _mqtt,
    ),
    "autopilot": Kind(
        "PX4 or ArduPilot: a companion computer beside the autopilot",
        {"mavlink.enabled": "true"},
        (
            Question("mavlink.connection", "Autopilot (pymavlink's string)", lambda _: "udpin:127.0.0.1:14540"),
            Question("pose.hfov_deg", "The camera's horizontal field of view, degrees (0: unknown)", lambda _: "60"),
        ),
        _autopilot,
    ),
    "laptop": Kind("a researcher: simulated swarms on this laptop", {}, (), lambda _: iter(())),
}
"""Who may begin; `laptop` gets a scenario of the simulator instead of a configuration."""


def _source(_: Texts) -> str:
    return next((str(path) for path in sorted(Path("/dev").glob("video*"))), _FARM_SOURCE)


def _origin(texts: Texts) -> str:
    return _FARM_ORIGIN if texts.get("eye.source", "").startswith(_FARM_SOURCE) else ""


_EVERYBODY = (
    Question("node.name", "Name of this node", lambda _: socket.gethostname().partition(".")[0]),
    Question("eye.source", f"Camera: /dev/video0, rtsp://…, a file; {_FARM_SOURCE} is a rendered farm", _source),
    Question("node.origin", "Where the map begins: LATITUDE,LONGITUDE (empty: nothing is placed)", _origin),
    Question("swarm.identity", "Folder from `swarmd enrol` (empty: a throw-away fleet in ./fleet)"),
    Question("swarm.join", "Another member's address, IP:PORT (empty: this is the first)"),
)
_LAPTOP = (
    Question("swarm.nodes", "How many drones", lambda _: _SCENARIO["swarm.nodes"]),
    Question("swarm.seconds", "How many virtual seconds", lambda _: _SCENARIO["swarm.seconds"]),
    Question("radio.loss", "Share of datagrams that are lost, 0 to 1", lambda _: _SCENARIO["radio.loss"]),
)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "quickstart",
        help="a first configuration by a few questions, and the next command",
        description="Writes a first configuration, checks it on this device, and says the next command.",
        epilog="; ".join(f"{name}: {kind.title}" for name, kind in KINDS.items()),
        allow_abbrev=False,
    )
    parser.add_argument("kind", nargs="?", choices=tuple(KINDS), metavar="|".join(KINDS), help="who begins")
    parser.add_argument("-o", "--out", type=Path, default=Path("swarmd.toml"), metavar="FILE", help="(swarmd.toml)")
    parser.add_argument("--yes", action="store_true", help="ask nothing: take each proposal")
    parser.add_argument("--force", action="store_true", help="replace FILE where there is one")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="SECTION.KEY=VALUE", help="an answer beforehand"
    )


def run(args: argparse.Namespace) -> int:
    """Ask, check, write, and say what comes next; 1 where this device cannot run what was written."""
    if args.out.exists() and not args.force:
        raise DaemonError(f"{args.out} exists; --force replaces it, -o FILE writes another one")
    if not args.out.parent.is_dir():
        raise DaemonError(f"{args.out.parent} is no folder; make it, or name another with -o FILE")
    if not args.yes and not sys.stdin.isatty():
        raise DaemonError("nobody can be asked here (standard input is no terminal); --yes takes each proposal")
    kind = args.kind or _which_kind(args.yes)
    given = _given(args.settings)
    if kind == "laptop":
        return _scenario(args.out, given, args.yes)
    return _configuration(args.out, kind, given, args.yes)


def _which_kind(yes: bool) -> str:
    if yes:
        raise DaemonError(f"with --yes say who begins: {', '.join(KINDS)}")
    print("Who begins?")
    for number, (name, kind) in enumerate(KINDS.items(), 1):
        print(f"  {number}  {name:9}  {kind.title}")
    while True:
        answer = _input("1 to 4, or the word: ")
        if answer in KINDS:
            return answer
        if answer.isdecimal() and 1 <= int(answer) <= len(KINDS):
            return list(KINDS)[int(answer) - 1]
        print(f"{answer!r} is none of them: type 1 to {len(KINDS)}, or one of {', '.join(KINDS)}", file=sys.stderr)


def _given(settings: list[str]) -> dict[str, str]:
    given = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or "." not in key:
            raise DaemonError(f"--set {setting}: write --set SECTION.KEY=VALUE")
        given[key] = value
    return given


def _input(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        raise DaemonError("the answers ended before the questions; nothing was written") from None


def _asked(
    questions: tuple[Question, ...], answers: dict[str, str], yes: bool, problem: Callable[[dict[str, str]], str]
) -> None:
    """Ask what is not answered yet; an answer that cannot be is asked for again, a proposal or `--set` is refused."""
    for question in questions:
        while question.key not in answers:
            proposal = question.proposal(answers)
            shown = f" [{proposal}]" if proposal else ""
            answer = proposal if yes else _input(f"{question.text}{shown}: ") or proposal
            refused = problem(answers | {question.key: answer})
            if not refused:
                answers[question.key] = answer
            elif yes:
                raise DaemonError(refused)
            else:
                print(refused, file=sys.stderr)


def _configuration(out: Path, name: str, given: dict[str, str], yes: bool) -> int:
    kind = KINDS[name]
    answers = {**kind.settings, **given}
    if refused := _config_problem(answers):
        raise DaemonError(refused)
    _asked(_EVERYBODY + kind.questions, answers, yes, _config_problem)
    if not answers["swarm.identity"]:
        answers.setdefault("swarm.dev_fleet", "fleet")
    values = _values(answers)
    head = [f"# {kind.title}. All keys: swarmd check-config --reference"]
    if "swarm.dev_fleet" in values:
        head.append("# dev_fleet is a throw-away fleet for a first try: who has the folder can enrol any node.")
    from swarmd.config.loading import load
    from swarmd.config.sections import sections

    fields = {f"{s}.{field.name}": field for s, kind_ in sections().items() for field in dataclasses.fields(kind_)}
    ordered = {key: values[key] for key in fields if key in values}
    _write(out, head, ordered, {key: fields[key].metadata["doc"] for key in ordered})

    loaded = load(out)
    print(f"wrote {out}")
    broken = _judge(loaded)
    port = loaded.config.transport.listen.rpartition(":")[2]
    print("\nNext, in this folder:")
    _say(
        [
            ("start it (Ctrl-C ends it)", f"swarmd run -c {out}"),
            ("in a second terminal: who is there", "swarmd members"),
            *kind.steps(loaded),
            (
                "a second node on this machine joins",
                f"swarmd run -c {out} --name {_node(loaded)}-2 --listen [::]:0{_alone(loaded)} --join 127.0.0.1:{port}",
            ),
            (
                "see the swarm in a browser (pip install 'swarmd[ground]')",
                f"swarmd ground -c {out} --name laptop --listen [::]:0 --join 127.0.0.1:{port} --open",
            ),
        ]
    )
    return int(broken)


def _config_problem(answers: dict[str, str]) -> str:
    """What the daemon's reader has against these answers, one problem a line; nothing: they hold."""
    from swarmd.config.loading import load
    from swarmd.errors import ConfigError

    try:
        load(None, {}, _values(answers))
    except ConfigError as error:
        return str(error)
    return ""


def _values(answers: Texts) -> dict[str, Any]:
    """Answers as values of their keys' types; what was left empty is left out."""
    from swarmd.config.loading import kind_of, parse_text

    values: dict[str, Any] = {}
    for key, text in answers.items():
        section, _, name = key.partition(".")
        kind = kind_of(section, name)
        if not text and kind is not None:
            continue
        try:
            values[key] = text if kind is None else parse_text(text, kind)
        except ValueError:
            values[key] = text  # The reader says what is wrong with it, by its key.
    return values


def _write(out: Path, head: list[str], values: Mapping[str, Any], words: Texts) -> None:
    """Write the file whole or not at all, each key below its words."""
    sections: dict[str, list[str]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        lines = sections.setdefault(section, [])
        lines += [f"# {line}" for line in textwrap.wrap(words.get(name, ""), _COLUMNS - 2)]
        lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    blocks = ["\n".join(head), *(f"[{section}]\n" + "\n".join(lines) for section, lines in sections.items())]
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        draft.write_text("\n\n".join(blocks) + "\n")
        draft.replace(out)
    finally:
        draft.unlink(missing_ok=True)


def _judge(loaded: "Loaded") -> bool:
    """Say what this device lacks for it; True when something would keep the daemon from working."""
    from swarmd.cli.diagnosis import diagnose
    from swarmd.cli.trials import try_out

    broken = False
    for key, problem in try_out(loaded.config):
        print(f"fail  {key}: {problem}")
        broken = True
    for finding in diagnose(loaded.config):
        if finding.verdict == "ok":
            continue
        broken |= finding.verdict == "fail"
        print(f"{finding.verdict}  {finding.check}: {finding.found}")
        if finding.remedy:
            print(f"      remedy: {finding.remedy}")
    mqtt = loaded.config.mqtt
    if mqtt.enabled:
        try:
            socket.create_connection((mqtt.host, mqtt.port), _BROKER_WAIT_S).close()
        except OSError as error:
            print(f"warn  mqtt: no broker answers at {mqtt.host}:{mqtt.port} ({error}); the daemon keeps trying")
            if shutil.which("mosquitto") is None and not Path("/usr/sbin/mosquitto").exists():
                print("      remedy: sudo apt install mosquitto mosquitto-clients")
    print("this device lacks something: see above" if broken else "this device has what it takes")
    return broken


def _scenario(out: Path, given: dict[str, str], yes: bool) -> int:
    answers = dict(given)
    if refused := _scenario_problem(answers):
        raise DaemonError(refused)
    _asked(_LAPTOP, answers, yes, _scenario_problem)
    head = ["# A scenario of the simulator: swarmd sim run FILE. Keys and faults: docs/simulator.md"]
    values = {**_FARM_SURVEY, **{key: _number(text) for key, text in answers.items()}}
    _write(out, head, {"swarm.nodes": values["swarm.nodes"], **values}, {})
    print(f"wrote {out}")
    print("\nNext, in this folder:")
    _say(
        [
            ("run it; the last lines say what was found, lost and sent", f"swarmd sim run {out} --seed 1"),
            ("see it in a browser", f"swarmd sim run {out} --view --open"),
            ("vary what you are after", f"swarmd sim sweep {out} --vary radio.loss=0,0.1,0.3 --seeds 3"),
            ("search for what breaks it", "swarmd sim fuzz --seeds 10"),
        ]
    )
    return 0


_FARM_SURVEY: dict[str, Any] = {
    "site.tables": 24,
    "site.modules": 40,
    "site.faults": 0.025,
    "site.site_map": True,
    "drones.work": "claims",
    "checks.settle_s": 40.0,
}
"""Drones that divide a farm among themselves, as in the scenario `solar-farm-20`."""


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _scenario_problem(answers: dict[str, str]) -> str:
    from swarmd_sim.errors import ScenarioError
    from swarmd_sim.run.scenario import scenario_from_table

    table: dict[str, Any] = {}
    for key, value in {**_FARM_SURVEY, **{key: _number(text) for key, text in answers.items()}}.items():
        section, _, name = key.partition(".")
        table.setdefault(section, {})[name] = value
    try:
        scenario_from_table(table, name="quickstart")
    except ScenarioError as error:
        return str(error)
    return ""


def _node(loaded: "Loaded") -> str:
    return loaded.config.node.name or socket.gethostname()


def _alone(loaded: "Loaded") -> str:
    """What a second node on this machine leaves to the first: a camera and an autopilot's port serve one process."""
    from swarmd_models.sources import is_live

    config = loaded.config
    camera = " --no-eye" if config.eye.enabled and is_live(config.eye.source) else ""
    return camera + (" --set mavlink.enabled=false" if config.mavlink.enabled else "")


def _say(steps: list[tuple[str, str]]) -> None:
    for purpose, command in steps:
        print(f"  # {purpose}\n  {command}")
