"""Draws the attacks of a run: few a seed, half of them aimed at another fault or attack of the run.

Attacks have choice streams of their own, so a seed's other faults are the same with attacks and without.
"""

from collections.abc import Sequence

from swarmd_sim.faults.attack_kinds import ATTACK_KINDS
from swarmd_sim.faults.faults import Fault
from swarmd_sim.run.choices import Choices

_NS_PER_S = 1_000_000_000
_MS_NS = 1_000_000
_LONGEST_MS, _SHORTEST_MS = 15_000, 2_000
"""An attack lasts 2 to 15 s: long enough to fill a table, short enough that a seed has quiet time after it."""
_BESIDE_MS = 8_000
"""How long the fault lasts at most that is drawn beside an attack."""


def draw_attacks(
    choices: Choices, kinds: Sequence[str], most: int, nodes: int, from_ns: int, until_ns: int, script: Sequence[Fault]
) -> list[Fault]:
    """Draw the attacks of one run.

    Args:
        choices: All randomness.
        kinds: What may be drawn; "all" stands for every attack.
        most: How many a run has at most.
        nodes: Hosts of the run.
        from_ns: Earliest beginning.
        until_ns: Latest end.
        script: The other faults, for attacks that are aimed at one.

    Returns:
        The attacks, each with the fault that is drawn beside it.
    """
    allowed = [kind for kind in ATTACK_KINDS if kind in kinds or "all" in kinds]
    if not allowed or until_ns - from_ns < _SHORTEST_MS * _MS_NS:
        return []
    drawn: list[Fault] = []
    thief = choices.choose("attack.thief", nodes)
    for _ in range(choices.choose("attack.count", most + 1)):
        kind = allowed[choices.choose("attack.kind", len(allowed))]
        about = ATTACK_KINDS[kind]
        at_ns = from_ns + choices.choose("attack.at", (until_ns - from_ns) // _MS_NS) * _MS_NS
        aims = [*drawn, *script]
        if aims and choices.choose("attack.aim", 2):
            # As another begins or ends: while a member is away, as it comes back, as a cut heals, as keys are replaced.
            other = aims[choices.choose("attack.aimed", len(aims))]
            at_ns = (other.at_ns, other.end_ns)[choices.choose("attack.edge", 2)]
        at_ns = max(from_ns, min(at_ns, until_ns - _SHORTEST_MS * _MS_NS))
        longest_ms = min(_LONGEST_MS * _MS_NS, until_ns - at_ns) // _MS_NS
        long_ms = _SHORTEST_MS + choices.choose("attack.long", max(1, longest_ms - _SHORTEST_MS))
        amount = about.per_s[choices.choose("attack.amount", len(about.per_s))]
        thieves: tuple[int, ...] = (thief,)
        if kind == "two_desks" and nodes > 3:
            thieves = (thief, (thief + 1 + choices.choose("attack.second", nodes - 1)) % nodes)
        attack = Fault(at_ns, kind, tuple(sorted(thieves)), long_ms * _MS_NS, amount)
        drawn.append(attack)
        if about.beside and nodes > 1:
            drawn.append(_beside(choices, attack, about.beside, nodes))
        if choices.choose("attack.other", 2):
            thief = choices.choose("attack.thief", nodes)
    return drawn


def _beside(choices: Choices, attack: Fault, kind: str, nodes: int) -> Fault:
    """A fault at another node that begins and ends within the attack, so that what comes back meets it."""
    thief = attack.nodes[0]
    node = (thief + 1 + choices.choose("attack.beside", nodes - 1)) % nodes
    long_ns = min(attack.duration_ns, _BESIDE_MS * _MS_NS) // 2
    amount = 60 if kind == "clock_step" else 0
    return Fault(attack.at_ns + long_ns // 4, kind, (node,), long_ns, amount)
