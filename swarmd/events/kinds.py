"""Every kind of event and every standing alert: what it means, how grave it is, who else is told.

The tables here are the one place where kinds are listed; `docs/operations.md` carries both, a test holds them equal.
"""

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How grave something is, in the words of the log."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Reach(StrEnum):
    """Who is told of an event."""

    HERE = "here"
    """It lies in this node's file."""
    SWARM = "swarm"
    """It is said to the whole swarm, and newcomers have it."""
    WITNESS = "witness"
    """Everybody notices it; two of those who do say it to the swarm."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of event."""

    level: Level
    reach: Reach
    means: str
    """One sentence without its full stop; what subject, reason and evidence are where that is not plain."""


_I, _W, _E = Level.INFO, Level.WARNING, Level.ERROR
_HERE, _SWARM, _WITNESS = Reach.HERE, Reach.SWARM, Reach.WITNESS

KINDS: dict[str, Kind] = {
    "started": Kind(_I, _SWARM, "this daemon began; the reason says whether its last life ended cleanly"),
    "stopped": Kind(_I, _HERE, "this daemon was told to leave"),
    "reloaded": Kind(_I, _HERE, "the configuration was read again; the reason says what was applied"),
    "joined": Kind(_I, _HERE, "a member was seen that was not known"),
    "left": Kind(_I, _HERE, "a member said good-bye"),
    "away": Kind(_I, _HERE, "a member announced an absence"),
    "unreachable": Kind(_W, _HERE, "a member's part of the swarm is cut off from this one; it may be well"),
    "failed": Kind(_W, _WITNESS, "a member is taken for dead; the reason says by what evidence"),
    "returned": Kind(_I, _WITNESS, "a member that had failed, left, gone away or been cut off is back"),
    "link-trouble": Kind(_W, _HERE, "a member is reached only in part: one way, through others, or late"),
    "link-restored": Kind(_I, _HERE, "that trouble is over"),
    "dismissed": Kind(_I, _SWARM, "an operator dismissed a failed member, which is listed again when it returns"),
    "alarm": Kind(_W, _HERE, "a part of the daemon warned once; the subject is its code"),
    "alert-raised": Kind(_W, _SWARM, "something needs a person and stands until it is solved; the subject is its code"),
    "alert-cleared": Kind(_I, _SWARM, "what an alert stood for is solved"),
    "alert-acknowledged": Kind(_I, _HERE, "a person has seen an alert; it holds until what it stands for is solved"),
    "clock-set": Kind(_W, _HERE, "swarm time was set at this node, by so much"),
    "address-changed": Kind(_I, _HERE, "the address that this node advertises is another one"),
    "autopilot": Kind(_I, _HERE, "the autopilot's link, mode, fix or arming changed; the subject says which"),
    "eye-ready": Kind(_I, _HERE, "the eye began to see; the reason names model and runtime"),
    "eye-restarted": Kind(_W, _HERE, "the eye died or hung and was started again"),
    "eye-fallback": Kind(_W, _HERE, "the eye stepped down to another runtime or model"),
    "eye-model": Kind(_I, _HERE, "the eye changed its model between two frames"),
    "release-rollout": Kind(_I, _HERE, "a release was seen, or a stage of its rollout opened"),
    "release-promoted": Kind(_I, _WITNESS, "a release was promoted to every node"),
    "release-halted": Kind(_E, _WITNESS, "a rollout was halted; the subject names model and version"),
    "release-revoked": Kind(_W, _WITNESS, "a release was revoked"),
    "release-trial": Kind(_I, _HERE, "this node tried a release; the reason is the verdict"),
    "release-rolled-back": Kind(_W, _SWARM, "this node went back from a release"),
    "reviewed": Kind(
        _I, _HERE, "an operator reviewed the object that the subject names; the reason says who says what"
    ),
    "root-replaced": Kind(_W, _WITNESS, "a new root of the fleet counts"),
    "revoked": Kind(_W, _WITNESS, "an officer shut members out; the subject names them, the reason is the officer's"),
    "group-key": Kind(_I, _WITNESS, "the swarm's group key was replaced"),
    "command": Kind(_I, _HERE, "an operator's command: verb, by whom, arguments"),
    "user-event": Kind(_I, _HERE, "a user event; the reason says who said it, the evidence is its payload"),
}
"""Kind to what it is."""

TOLD = frozenset(name for name, kind in KINDS.items() if kind.reach is not Reach.HERE)
"""Kinds that a node takes in from others: of the rest nobody but the node itself can know."""


class AlertKind(msgspec.Struct, frozen=True):
    """One condition that stands until it is solved."""

    level: Level
    """With `ERROR` this node is unhealthy: `/healthz` answers 503."""
    means: str
    """One sentence without its full stop."""
    remedy: str
    """What a person does, one sentence."""
    solved: str
    """What is said when it is over, a few words."""


ALERTS: dict[str, AlertKind] = {
    "identity-cloned": AlertKind(
        _E,
        "another process runs with this node's identity",
        "Stop one of the two; enrol the other device under a name of its own.",
        "one process has it again",
    ),
    "revoked": AlertKind(
        _E,
        "officers shut this node out, so the swarm does not hear it",
        "If it is in good hands again, let it in under a new key: `swarmd enrol`.",
        "it is no longer shut out",
    ),
    "replaced": AlertKind(
        _E,
        "this node's name was enrolled again under another key, so the swarm does not hear it",
        "If this is the device that is to have the name, install its newest identity; else `swarmd enrol` by another.",
        "it has the name again",
    ),
    "not-certified": AlertKind(
        _E,
        "no root in force stands behind this node's certificate, so the swarm does not hear it",
        "An officer renews it, nobody has to come here: `swarmd keys renew FLEET NAME`.",
        "it has a certificate again",
    ),
    "group-key-unknown": AlertKind(
        _W,  # Anybody can send such a frame: what an outsider says must not make a node unhealthy.
        "peers seal with a group key that this node does not hold, or somebody invents such frames",
        "Hand over the newest key: `swarmd keys push` to this node, or enrol it anew.",
        "the key is known again",
    ),
    "join-unanswered": AlertKind(
        _W,
        "this node was told where its swarm is, and nobody there answers it",
        "Is swarmd there, on that port, with UDP and TCP let through, and of the same fleet? The folder of a "
        "development fleet is a copy of one.",
        "a member is reached",
    ),
    "wire-version": AlertKind(
        _W,  # Anybody can send such a frame.
        "a node nearby speaks another version of the wire, so the two do not hear each other, or somebody invents it",
        "Upgrade the older of the two; `swarmd version` says which wire a program speaks.",
        "nobody speaks another wire any more",
    ),
    "loopback-advertised": AlertKind(
        _W,
        "this node tells others to reach it at a loopback address, which only works on one machine",
        "Name the interface's address: `transport.advertise`.",
        "another address is advertised",
    ),
    "clock-wrong": AlertKind(
        _W,
        "this device's clock differs from what the swarm agrees on",
        "Set the clock: `timedatectl`, or give the device a time source.",
        "the clocks agree again",
    ),
    "broker-lost": AlertKind(
        _W,
        "the MQTT broker does not answer; messages wait in memory",
        "Look at the reason; `mqtt.host`, `mqtt.port`, certificates and password are its usual causes.",
        "connected again",
    ),
    "region-lost": AlertKind(
        _W,
        "the region above does not answer this gateway; what it has to tell waits on the disk",
        "Look at the reason. See that `swarmd region run` runs, by a broker or router that this gateway reaches too, "
        "that `federation.region_key` is what `swarmd region show` prints, and that `swarmd region pin` got the "
        "fleet's first root and, by `--swarm`, its own name.",
        "the region answers",
    ),
    "no-fix": AlertKind(
        _W,
        "the autopilot has no position good enough to place detections",
        "Wait for the receiver, or look at `mavlink.min_satellites` and the antenna.",
        "the fix is back",
    ),
    "autopilot-silent": AlertKind(
        _W,
        "the autopilot says nothing on its link",
        "Check `mavlink.connection`, the cable and the baud rate.",
        "the autopilot speaks again",
    ),
    "wrong-sysid": AlertKind(
        _W,
        "another autopilot than the one asked for speaks on the link",
        "Set `mavlink.system_id` to the vehicle's, or separate the links.",
        "the right autopilot speaks again",
    ),
    "operators-shut-out": AlertKind(
        _W,
        "the door for operators cannot open",
        "Look at the reason; `swarmd check-config` tries its files and its address.",
        "the door is open, or none is wanted",
    ),
    "eye-given-up": AlertKind(
        _E,
        "the eye cannot work any more and is not started again",
        "Look at the reason; `swarmd eye start` tries again.",
        "the eye sees again",
    ),
    "source-silent": AlertKind(
        _W,
        "the eye gets no frames from its source, which it opens again and again",
        "Look at the reason; `eye.source`, the cable, the network, the group `video` and other programs that hold the "
        "camera are its usual causes.",
        "frames come again",
    ),
    "journal-failing": AlertKind(
        _E,
        "the journal cannot be written; own facts wait in memory",
        "Free some space on the disk, or replace it.",
        "the disk takes records again",
    ),
    "events-failing": AlertKind(
        _W,
        "the file of events cannot be written; events wait in memory",
        "Free some space on the disk, or replace it.",
        "the disk takes events again",
    ),
    "release-halted": AlertKind(
        _W,
        "a rollout is halted",
        "Read why: `swarmd model status`; then revoke the release or publish a better one.",
        "the rollout goes on, or is over",
    ),
}
"""Code to what it is."""


def level_of(kind: str) -> Level:
    """How grave an event of this kind is; one that a newer version says is `INFO`."""
    return KINDS[kind].level if kind in KINDS else Level.INFO


def kinds_table() -> str:
    """The kinds as the page shows them."""
    rows = [f"| `{name}` | {kind.level} | {kind.reach} | {kind.means} |" for name, kind in KINDS.items()]
    return "\n".join(["| kind | level | told | means |", "|---|---|---|---|", *rows])


def alerts_table() -> str:
    """The standing alerts as the page shows them."""
    rows = [f"| `{name}` | {kind.level} | {kind.means} | {kind.remedy} |" for name, kind in ALERTS.items()]
    return "\n".join(["| alert | level | means | remedy |", "|---|---|---|---|", *rows])
