"""What can go wrong, as data: a script of faults that is drawn from the seed, recorded, replayed and shrunk.

`FAULTS` is the vocabulary; `draw_script` writes a script with it; `injector.py` carries it out. Each seed first
draws which kinds it may use at all (swarm testing): a run with only clogs and crashes finds what a run with
everything at once hides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.run.choices import MILLION, Choices

_NS_PER_S = 1_000_000_000
_MS_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind of fault.

    Attributes:
        family: "link", "process", "disk", "clock", "cpu", "people" or "hostile".
        text: What it does, for the timeline and the docs.
        most_nodes_milli: Share of the nodes that one fault may touch at most, thousandths.
        amounts: Possible amounts, quietest first.
        unit: What the amount means.
    """

    family: str
    text: str
    most_nodes_milli: int
    amounts: tuple[int, ...] = (0,)
    unit: str = ""


FAULTS: dict[str, FaultKind] = {
    "loss": FaultKind("link", "frames to and from these nodes are lost", 1_000, (50_000, 200_000, 400_000), "ppm"),
    "duplicate": FaultKind("link", "datagrams arrive twice", 1_000, (100_000, 500_000), "ppm"),
    "reorder": FaultKind("link", "datagrams overtake each other", 1_000, (50, 200, 1_000), "ms of hold"),
    "corrupt": FaultKind("link", "a bit of a datagram flips", 1_000, (10_000, 200_000), "ppm"),
    "delay": FaultKind("link", "frames are late", 500, (50, 150, 400), "ms"),
    "deaf": FaultKind("link", "these nodes hear nothing but are heard", 150),
    "mute": FaultKind("link", "these nodes hear but are not heard", 150),
    "one_way": FaultKind("link", "the first node is not heard by the second", 0),
    "clog": FaultKind("link", "frames between these nodes and the rest wait until the end", 300),
    "partition": FaultKind("link", "these nodes are cut from all others", 700),
    "jam": FaultKind("link", "a disc around the first node hears only noise", 0, (50, 100, 200), "m"),
    "kill": FaultKind("process", "SIGKILL, later restarted on its disk", 300),
    "power_loss": FaultKind("process", "the machine goes dark, later restarted on its disk", 300),
    "lost_disk": FaultKind("process", "killed and restarted on an empty disk", 100),
    "torn_disk": FaultKind("process", "killed in the middle of a write, restarted on what is left", 100),
    "corrupt_disk": FaultKind("process", "killed and restarted with a flipped bit in the journal", 100),
    "crash_at_effect": FaultKind("process", "killed between two effects of one list", 100, (1, 2, 3, 5, 9), "effects"),
    "oom_kill": FaultKind("process", "killed and restarted at once, again and again", 60, (2, 4), "times"),
    "freeze": FaultKind("cpu", "SIGSTOP or a long pause", 200),
    "gc_pause": FaultKind("cpu", "short pauses again and again", 300, (200, 600), "ms"),
    "throttle": FaultKind("cpu", "the CPU is slow", 300, (4, 20), "times slower"),
    "disk_full": FaultKind("disk", "writes stay in memory", 200),
    "slow_fsync": FaultKind("disk", "each write takes long", 300, (30, 300), "ms"),
    "clock_drift": FaultKind("clock", "the oscillator runs off", 300, (200, 5_000, 15_000), "ppm"),
    "clock_step": FaultKind("clock", "the wall clock jumps and the node restarts on it", 150, (60, 3_600), "s"),
    "send_error": FaultKind("people", "the firewall forbids sending", 100),
    "leave": FaultKind("people", "leaves in good order, later starts again", 200),
    "away": FaultKind("people", "announces an absence, is silent for it, comes back", 150),
    "readdress": FaultKind("people", "restarts under another address", 100),
    "replay_attack": FaultKind("hostile", "sends captured frames again, to anybody", 60),
    "flood": FaultKind("hostile", "sends noise and old frames at a high rate", 60, (50, 300), "frames/s"),
    "equivocate": FaultKind("hostile", "two lives of one identity run at once and contradict each other", 60),
    "lie_position": FaultKind("hostile", "reports things that are not there", 100),
    "lie_health": FaultKind("hostile", "reports false status and counters", 100),
    "accuse": FaultKind("hostile", "a stolen key calls everybody suspect, stuck or failed", 100, (2, 10), "a second"),
    "poison_delta": FaultKind("hostile", "gives wrong bytes for models and deltas, and offers forged deltas", 150),
    "forge_release": FaultKind("hostile", "offers releases, floors, revocations and verdicts it may not sign", 150),
}
"""Every kind of fault there is."""

FAULT_KINDS = tuple(FAULTS)
"""What `faults.kinds` may name; attacks are drawn apart (`faults.attacks`), so that neither moves the other's draws."""
OFFICER_KINDS = frozenset(
    {"revoke_thief", "two_desks", "replace_revoke", "replace_enrol", "replace_models", "replace_root"}
)
"""What the fleet's officers do; drawn among the attacks."""
FAULTS |= {
    kind: FaultKind("officer", about.text, 0)
    if kind in OFFICER_KINDS
    else FaultKind("hostile", about.text, 0, about.per_s, "strokes/s")
    for kind, about in ATTACK_KINDS.items()
}
RELEASE_KINDS = frozenset({"poison_delta", "forge_release"})
"""Kinds that mean nothing where no release is published."""
HOSTILE_KINDS = frozenset(kind for kind, about in FAULTS.items() if about.family == "hostile")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of a script."""

    at_ns: int
    kind: str
    nodes: tuple[int, ...]
    duration_ns: int
    amount: int

    @property
    def end_ns(self) -> int:
        """When it is over."""
        return self.at_ns + self.duration_ns

    def to_row(self) -> list[object]:
        """The form in a replay file."""
        return [self.at_ns, self.kind, list(self.nodes), self.duration_ns, self.amount]

    def describe(self) -> str:
        """One readable line."""
        about = FAULTS[self.kind]
        amount = f", {self.amount} {about.unit}" if about.unit else ""
        nodes = ", ".join(f"n{node}" for node in self.nodes[:12]) + (" …" if len(self.nodes) > 12 else "")
        return f"{self.kind} [{nodes}] for {self.duration_ns / 1e9:.3f} s{amount}: {about.text}"


@dataclass(frozen=True, slots=True)
class Moment:
    """How a fault is aimed at a protocol state: at which moment of which other fault.

    Attributes:
        state: The state, by its name in `coverage.ProtocolState`.
        makers: Kinds of faults that bring the state about.
        after_end: Counted from the end of the other fault, else from its beginning.
        from_ms: Earliest.
        until_ms: Latest; 0: as long as the other one lasts.
        same_nodes: At nodes of the other fault, else at others.
    """

    state: str
    makers: tuple[str, ...]
    after_end: bool
    from_ms: int
    until_ms: int
    same_nodes: bool


_RESTARTS = ("kill", "power_loss", "lost_disk", "torn_disk", "corrupt_disk", "readdress", "clock_step")
MOMENTS = (
    Moment("joining", _RESTARTS, True, 0, 1_500, True),
    Moment("suspecting", ("power_loss", "freeze", "mute", "partition", "send_error"), False, 300, 3_000, False),
    Moment("suspected", ("freeze", "mute", "partition", "send_error", "deaf", "clog"), False, 300, 4_000, True),
    Moment("missing-peer", ("kill", "power_loss"), False, 0, 0, False),
    Moment("cut-off", ("partition",), False, 0, 0, True),
    Moment("stalled", ("freeze", "gc_pause"), False, 0, 0, True),
    Moment("down", ("kill", "power_loss", "lost_disk"), False, 0, 0, True),
    Moment("leaving", ("leave",), False, 0, 1_400, True),
)


def draw_script(
    choices: Choices,
    kinds: Sequence[str],
    nodes: int,
    count: int,
    from_ns: int,
    until_ns: int,
    longest_ns: int,
    busy_ns: Sequence[int] = (),
) -> list[Fault]:
    """Draw a fault script. Half of the faults come at any time, half are aimed at a protocol state (`MOMENTS`).

    Args:
        choices: All randomness.
        kinds: What may be drawn; "all" stands for every kind.
        nodes: Hosts of the run.
        count: How many faults at most.
        from_ns: Earliest beginning.
        until_ns: Latest end.
        longest_ns: Longest duration.
        busy_ns: When something happens that faults should meet, such as a release.

    Returns:
        The faults by time.
    """
    allowed = [kind for kind in FAULT_KINDS if kind in kinds or "all" in kinds]
    # Each seed switches about half of the kinds off.
    enabled = [kind for kind in allowed if choices.choose("fault.enable", 2)]
    if not enabled and allowed and count:
        enabled = [allowed[choices.choose("fault.enable", len(allowed))]]
    if not enabled or until_ns <= from_ns:
        return []
    actual = choices.choose("fault.count", count + 1)
    window = _Window(enabled, nodes, from_ns, until_ns, longest_ns, tuple(busy_ns))
    script: list[Fault] = []
    while len(script) < actual:
        script += _draw_aimed(choices, window, script)
    return sorted(script, key=lambda fault: (fault.at_ns, fault.kind, fault.nodes))


@dataclass(frozen=True, slots=True)
class _Window:
    enabled: Sequence[str]
    nodes: int
    from_ns: int
    until_ns: int
    longest_ns: int
    busy_ns: tuple[int, ...]


def _draw_aimed(choices: Choices, window: _Window, script: Sequence[Fault]) -> list[Fault]:
    """One fault, and before it the one that makes the state it is aimed at, when the script has none of that kind."""
    aim = choices.choose("fault.aim", 2 * len(MOMENTS) + 2)
    if aim == 0 and window.busy_ns:
        near_ns = window.busy_ns[choices.choose("fault.busy", len(window.busy_ns))]
        return [_draw_fault(choices, window, near_ns + choices.choose("fault.at", 5_000) * _MS_NS)]
    if aim < len(MOMENTS) + 2:
        return [_draw_fault(choices, window)]
    moment = MOMENTS[aim - len(MOMENTS) - 2]
    makers = [fault for fault in script if fault.kind in moment.makers and fault.duration_ns]
    new = []
    if not makers:
        usable = [kind for kind in moment.makers if kind in window.enabled]
        if not usable:
            return [_draw_fault(choices, window)]
        new = makers = [_draw_fault(choices, window, kind=usable[choices.choose("fault.maker", len(usable))])]
    maker = makers[choices.choose("fault.maker", len(makers))]
    start_ns = maker.end_ns if moment.after_end else maker.at_ns
    until_ms = moment.until_ms or maker.duration_ns // _MS_NS
    at_ms = moment.from_ms + choices.choose("fault.at", max(1, until_ms - moment.from_ms))
    others = [node for node in range(window.nodes) if (node in maker.nodes) == moment.same_nodes]
    return [*new, _draw_fault(choices, window, start_ns + at_ms * _MS_NS, others or list(range(window.nodes)))]


def _draw_fault(choices: Choices, window: _Window, at_ns: int = -1, among: Sequence[int] = (), kind: str = "") -> Fault:
    enabled, nodes = window.enabled, window.nodes
    kind = kind or enabled[choices.choose("fault.kind", len(enabled))]
    about = FAULTS[kind]
    span_ms = (window.until_ns - window.from_ns) // MILLION
    if at_ns < 0:
        at_ns = window.from_ns + choices.choose("fault.at", max(1, span_ms)) * MILLION
    at_ns = min(at_ns, window.until_ns)
    # Short ones are likelier: half of all faults last under a quarter of the longest.
    longest_ms = min(window.longest_ns, window.until_ns - at_ns) // MILLION
    duration_ms = choices.choose("fault.long", max(1, longest_ms))
    duration_ms = duration_ms * choices.choose("fault.long", 1_001) // 1_000
    most = max(1, nodes * about.most_nodes_milli // 1_000)
    if kind == "one_way":
        most = 2
    wanted = 1 + choices.choose("fault.size", min(most, nodes))
    if kind == "one_way":
        wanted = 2
    pool = list(among or range(nodes))
    if len(pool) < wanted and kind == "one_way":
        pool = list(range(nodes))
    picked = tuple(sorted(choices.sample("fault.node", pool, min(wanted, len(pool)))))
    amount = about.amounts[choices.choose("fault.amount", len(about.amounts))]
    return Fault(at_ns, kind, picked, duration_ms * MILLION, amount)


def simpler(fault: Fault) -> list[Fault]:
    """Simpler versions of a fault, simplest first, for shrinking.

    Args:
        fault: A fault of a failing script.

    Returns:
        Faults with fewer nodes, a shorter time or a smaller amount.
    """
    found = []
    if len(fault.nodes) > 1 and fault.kind != "one_way":
        half = len(fault.nodes) // 2
        found += [replace(fault, nodes=fault.nodes[:half]), replace(fault, nodes=fault.nodes[half:])]
    if fault.duration_ns > _NS_PER_S // 10:
        found.append(replace(fault, duration_ns=fault.duration_ns // 2))
    amounts = FAULTS[fault.kind].amounts
    if fault.amount in amounts[1:]:
        found.append(replace(fault, amount=amounts[amounts.index(fault.amount) - 1]))
    return found


def fault_from_row(row: object) -> Fault:
    """Parse one row of a replay file; raises `ValueError` that says what is wrong.

    Args:
        row: What `Fault.to_row` gave, after a trip through JSON.

    Returns:
        The fault.
    """
    if not isinstance(row, list) or len(row) != 5:
        raise ValueError("a fault has five fields")
    at_ns, kind, nodes, duration_ns, amount = row
    numbers = (at_ns, duration_ns, amount)
    if any(type(number) is not int or number < 0 for number in numbers) or kind not in FAULTS:
        raise ValueError(f"{row!r} is no fault")
    if not isinstance(nodes, list) or any(type(node) is not int or node < 0 for node in nodes):
        raise ValueError(f"{nodes!r} are no nodes")
    return Fault(at_ns, kind, tuple(nodes), duration_ns, amount)
