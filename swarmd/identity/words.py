"""What a statement will do, in words, computed from the bytes that are signed and from nothing else.

An officer reads this before signing. Names of nodes come from certificates that hold, names of keys from the public
halves at hand, each bound to its key by the key's id; a number that has no name is shown as hex digits.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar, assert_never

import msgspec

from swarmd.errors import DaemonError
from swarmd.identity.officers import PublicHalf
from swarmd_protocols.errors import ProtocolError
from swarmd_protocols.releases import statements as models
from swarmd_protocols.trust.envelopes import ROLE_OF, key_id
from swarmd_protocols.trust.payloads import Certificate, GroupKey, Revocation, plain
from swarmd_protocols.trust.roots import ROLES, Role, Root

"""Kind of a statement to the role whose keys sign it; a root needs the old root's keys and the new one's."""
_TITLES = {
    "root": "a root of the fleet",
    "node": "a node's certificate",
    "group": "a group key",
    "revoke": "a revocation of nodes",
    "release": "a release of a model",
    "delta": "a delta between models",
    "floor": "a model's floor",
    "model-revoke": "a revocation of a release",
    "halt": "a halt of a rollout",
    "force": "a forced stage of a rollout",
    "heartbeat": "a heartbeat of the publisher",
}
_WORK = {
    "root": "change who holds which role",
    "enrol": "let nodes in, and make group keys",
    "revoke": "shut nodes out, take releases back",
    "release": "release models",
    "floor": "rule out old models for ever",
    "heartbeat": "say that the publisher is alive",
    "operator": "review what the swarm has found, each key for itself",
}
_T = TypeVar("_T")


class WordsError(DaemonError):
    """The bytes are no such statement; nothing was signed."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is known besides the statement."""

    root: Root | None = None
    """The root in force where it was prepared; None for a first one."""
    officers: Mapping[bytes, str] = field(default_factory=dict)
    """Key id to name."""
    nodes: Mapping[bytes, Certificate] = field(default_factory=dict)
    """Node id to a certificate that holds."""
    marks: Mapping[bytes, str] = field(default_factory=dict)
    """`mark` of a statement that holds, and what it says."""

    def officer(self, key_id: bytes) -> str:
        """A key's name, else the start of its id."""
        return self.officers.get(key_id, key_id.hex()[:8])

    def node(self, node: bytes) -> str:
        """A node's name and id."""
        known = self.nodes.get(node)
        return (
            f"{plain(known.name)} (node {node.hex()})" if known else f"node {node.hex()} (its name is not known here)"
        )


@dataclass(frozen=True, slots=True)
class Words:
    """A statement, said."""

    title: str
    effects: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    is_secret: bool = False
    """Whether the payload itself must stay with officers (a group key)."""


def describe(kind: str, payload: bytes, context: Context) -> Words:
    """Say what a statement does.

    Args:
        kind: The type tag that the signature covers.
        payload: The bytes that the signature covers.
        context: Names, and the root in force.

    Raises:
        WordsError: The payload is no such statement, or one that no node would take.
    """
    tellers: dict[str, Callable[[bytes, Context], tuple[list[str], list[str]]]] = {
        "root": _root,
        "node": _node,
        "group": _group,
        "revoke": _revoke,
    }
    teller = tellers.get(kind)
    if teller is None and kind not in ROLE_OF:
        raise WordsError(f"statements of kind {plain(kind, 40)!r} are not known here; is this swarmd too old?")
    effects, warnings = teller(payload, context) if teller else _model(kind, payload)
    return Words(_TITLES[kind], tuple(effects), tuple(warnings), kind == "group")


def parse_root(payload: bytes) -> Root:
    """Read a root's payload and check that its numbers make sense.

    Raises:
        WordsError: It is none.
    """
    root = _decode(payload, Root, "root")
    known = {key_id(key) for key in root.keys}
    names = [role.name for role in root.roles]
    if "root" not in names or len(names) != len(set(names)):
        raise WordsError("a root names the role root, and each role once")
    for role in root.roles:
        if (
            not 1 <= role.threshold <= len(set(role.key_ids)) <= len(role.key_ids) <= 16
            or not set(role.key_ids) <= known
        ):
            raise WordsError(
                f"role {plain(role.name, 40)!r} asks for {role.threshold} of {len(role.key_ids)} known keys"
            )
    return root


def roles_of(root: Root) -> dict[str, Role]:
    """A root's roles by name."""
    return {role.name: role for role in root.roles}


def _decode(payload: bytes, kind: type[_T], name: str) -> _T:
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WordsError(f"the payload is no {name}: {error}") from error


# --- trust ----------------------------------------------------------------------------------------------------------


def _root(payload: bytes, context: Context) -> tuple[list[str], list[str]]:
    new, old = parse_root(payload), context.root
    if old is None:
        effects = [f"begins the fleet {plain(new.fleet)!r} with root {new.version}; every node is born with it"]
        effects += [f"{_who(role, context)} {_WORK.get(role.name, '')}".rstrip() for role in _in_order(new.roles)]
        effects += _newcomers(new, None, context)
        return effects, _root_warnings(new, context)
    if (new.fleet, new.version) != (old.fleet, old.version + 1) or new.epoch - old.epoch not in (0, 1):
        raise WordsError(
            f"root {new.version} of fleet {plain(new.fleet)!r}, epoch {new.epoch}, does not follow root "
            f"{old.version} of {plain(old.fleet)!r}, epoch {old.epoch}; prepare it anew"
        )
    effects = [f"replaces root {old.version} of the fleet {plain(old.fleet)!r} by root {new.version}"]
    before, after = roles_of(old), roles_of(new)
    warnings = _root_warnings(new, context)
    for name in dict.fromkeys([*(role.name for role in _in_order(new.roles)), *before]):
        was, now = before.get(name), after.get(name)
        if was is None and now is not None:
            effects.append(f"new role: {_who(now, context)} {_WORK.get(name, '')}".rstrip())
        elif was is not None and now is None:
            warnings.append(f"the role {plain(name)} ends: nobody will be able to {_WORK.get(name, 'sign for it')}")
        elif was is not None and now is not None and was != now:
            effects += _changed_role(was, now, context)
            if now.threshold < was.threshold:
                warnings.append(
                    f"role {plain(name)} takes {now.threshold} signatures instead of {was.threshold}: weaker"
                )
    if len(effects) == 1:
        warnings.append("it changes no role")
    effects += _newcomers(new, old, context)
    if new.epoch > old.epoch:
        effects.append("starts a new epoch: what was signed in the old one by keys that go counts no more")
    if new.kept:
        effects.append(f"{len(new.kept)} statements of keys that go stay right all the same:")
        effects += sorted(f"  {context.marks[one]}" for one in new.kept if one in context.marks)
    if unknown := sum(one not in context.marks for one in new.kept):
        warnings.append(
            f"{unknown} of the statements that stay right are not in the file: group keys, which are secret, or what "
            "should not stay; ask who prepared it"
        )
    return effects, warnings


def _newcomers(new: Root, old: Root | None, context: Context) -> list[str]:
    """Keys that no root named before, with what their owners can compare: a name alone proves nothing."""
    before = set(old.keys) if old else set()
    halves = [PublicHalf(key, context.officer(key_id(key))) for key in new.keys if key not in before]
    return [f"new key of {half.name}: {half.fingerprint}" for half in sorted(halves, key=lambda half: half.name)]


def _changed_role(was: Role, now: Role, context: Context) -> list[str]:
    said = [f"{_who(now, context)} {_WORK.get(now.name, '')} (it was {was.threshold} of {len(was.key_ids)})"]
    for word, keys in (("out", set(was.key_ids) - set(now.key_ids)), ("in", set(now.key_ids) - set(was.key_ids))):
        if keys:
            said.append(f"  {word}: {_names(keys, context)}")
    if set(was.key_ids) != set(now.key_ids):
        said += {
            "enrol": [
                "  certificates and group keys hold where keys that remain have signed them, or this root names them"
            ],
            "revoke": ["  who is out stays out"],
        }.get(now.name, [])
    return said


def _root_warnings(root: Root, context: Context) -> list[str]:
    roles = roles_of(root)
    said = [
        f"nobody holds the role {name}: nobody can {_WORK[name]}"
        for name in ROLES
        if name not in roles and name != "operator"  # Many fleets need none, and one can be named on any day.
    ]
    said += [
        f"one key alone can {_WORK[name]}: {_names(roles[name].key_ids, context)}"
        for name in ("root", "release", "floor")
        if name in roles and roles[name].threshold == 1
    ]
    said += [f"role {plain(name)} is none that swarmd knows" for name in roles if name not in _WORK]
    return said


def _in_order(roles: Iterable[Role]) -> list[Role]:
    return sorted(roles, key=lambda role: (list(_WORK).index(role.name) if role.name in _WORK else 99, role.name))


def _who(role: Role, context: Context) -> str:
    return f"{plain(role.name)}: {role.threshold} of {len(role.key_ids)} ({_names(role.key_ids, context)})"


def _names(keys: Iterable[bytes], context: Context) -> str:
    return ", ".join(sorted(context.officer(key) for key in keys))


def _node(payload: bytes, context: Context) -> tuple[list[str], list[str]]:
    certificate = _decode(payload, Certificate, "certificate")
    effects = [
        f"lets {plain(certificate.name)!r} into the swarm {plain(certificate.swarm)!r}: node {certificate.node.hex()}",
        f"its roles besides membership: {', '.join(map(plain, certificate.roles)) or 'none'}",
    ]
    others = [
        one.node.hex()
        for one in context.nodes.values()
        if one.name == certificate.name and one.node != certificate.node
    ]
    warnings = [f"the name belongs to node {other}; this replaces it" for other in sorted(others)]
    return effects, warnings


def _group(payload: bytes, context: Context) -> tuple[list[str], list[str]]:
    del context
    group = _decode(payload, GroupKey, "group key")
    effects = [
        f"gives the swarm {plain(group.swarm)!r} a new group key, number {group.counter}, for first contact",
        "members that are away get it when they come back",
    ]
    return effects, ["the file holds the group key itself: give it to officers only, and delete it afterwards"]


def _revoke(payload: bytes, context: Context) -> tuple[list[str], list[str]]:
    revocation = _decode(payload, Revocation, "revocation")
    effects = [f"shuts out of the swarm {plain(revocation.swarm)!r}, for good:"]
    effects += [f"  {context.node(node)}" for node in revocation.nodes]
    effects.append(f"reason, as people will read it: {plain(revocation.reason)!r}")
    warnings = [] if revocation.nodes else ["it names nobody"]
    return effects, warnings


# --- models ---------------------------------------------------------------------------------------------------------


def _model(kind: str, payload: bytes) -> tuple[list[str], list[str]]:
    try:
        statement = models.parse_statement(kind, payload)
    except ProtocolError as error:
        raise WordsError(f"the payload is no {kind}: {error}") from error
    match statement:
        case models.Release():
            return _release(statement)
        case models.DeltaOffer(model, epoch, delta):
            text = f"offers {delta.blob.size} bytes that make file {delta.target_sha256.hex()[:16]}… of {model!r}"
            return [text, f"out of {delta.base_sha256.hex()[:16]}…, epoch {epoch}"], []
        case models.Floor(model, epoch, version, issued):
            return [
                f"no node will ever again run {model!r} below version {version} (epoch {epoch})",
                _issued(issued),
            ], ["a floor cannot be lowered; set it when the version has proven itself"]
        case models.Halt(model, epoch, release, reason, issued):
            return [
                f"stops the rollout of release {release.hex()} of {model!r} (epoch {epoch}); nodes that run it go back",
                f"reason: {plain(reason)!r}",
                _issued(issued),
            ], []
        case models.Revoke(model, epoch, release, reason, issued):
            return [
                f"release {release.hex()} of {model!r} (epoch {epoch}) never runs again; nodes that run it go back",
                f"reason: {plain(reason)!r}",
                _issued(issued),
            ], []
        case models.Force(model, epoch, release, stage, issued):
            return [
                f"opens stage {stage} (counted from 0) of release {release.hex()} of {model!r} (epoch {epoch})",
                _issued(issued),
            ], ["it opens whatever the canaries say"]
        case models.Heartbeat(epoch, sequence, issued, newest):
            named = [f"names the newest release of a model: {one.hex()}…" for one in newest]
            return [f"says that the publisher is alive: number {sequence}, epoch {epoch}", _issued(issued), *named], []
        case _:
            assert_never(statement)


def _release(release: models.Release) -> tuple[list[str], list[str]]:
    stages = ", ".join(f"{percent} %" for percent in release.rollout.stages_percent)
    effects = [f"releases version {release.version} of the model {release.model!r} (epoch {release.epoch})"]
    effects += [
        f"  {one.path} ({one.role}): {one.blob.size} bytes, SHA-256 {one.blob.sha256.hex()}" for one in release.bundle
    ]
    effects += [
        f"after the release {release.previous.hex()}" if release.previous else "it is the model's first release",
        f"to {stages} of the nodes in turn; {release.gates.soak_s} s of trial each; at least "
        f"{release.rollout.min_reports} passes a stage",
        _issued(release.issued_at_s),
    ]
    warnings = []
    if release.rollout.stages_percent == (100,):
        warnings.append("one stage: every node at once, with no canary")
    if release.rollout.max_fails:
        warnings.append(f"{release.rollout.max_fails} failed nodes do not halt it")
    return effects, warnings


def _issued(seconds: int) -> str:
    if not 0 < seconds < 253_402_300_800:  # The year 10000.
        return "with no date"
    return f"dated {datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
