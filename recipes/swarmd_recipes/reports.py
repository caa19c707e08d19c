"""What the small language model is taught: events of a swarm in, one sentence for people out, both drawn by a grammar.

A prompt has a line an event, `ORIGIN KIND SUBJECT`, as `swarmd events --json` has them, perhaps ` near row 12` behind
it, and lines such as `3 hot-spot review`: so many wait. The report names each thing once, in the order in which it was
first told; what the same happened to shares a clause. A prompt has exactly one right report, so a model can be scored.

```
drone-4 autopilot fix near row 12
station-1 failed drone-7
drone-2 failed drone-9
3 hot-spot review
=> Drone 4 lost its fix near row 12; drone 7 and drone 9 are taken for dead; three hot spots wait for review.
```
"""

import random
from dataclasses import dataclass

KINDS = {
    "started": "{s} began", "stopped": "{s} was told to leave", "reloaded": "{s} read its configuration again",
    "clock-set": "the clock of {o} was set", "address-changed": "{o} has another address",
    "joined": "{s} joined", "left": "{s} left", "away": "{s} went away", "unreachable": "{s} is cut off",
    "failed": "{s} is taken for dead", "returned": "{s} is back", "dismissed": "{s} was dismissed",
    "revoked": "{s} was shut out", "link-trouble": "{o} has trouble with its link to {s}",
    "link-restored": "the link of {o} to {s} is well again",
    "eye-ready": "the eye of {o} sees", "eye-restarted": "the eye of {o} was started again",
    "eye-fallback": "the eye of {o} stepped down", "eye-model": "the eye of {o} changed its model",
    "release-rolled-back": "{o} went back from a release", "release-trial": "{o} tried a release",
    "release-promoted": "a release was promoted", "release-halted": "a rollout was halted",
    "release-revoked": "a release was revoked", "root-replaced": "a new root counts",
    "group-key": "the group key was replaced",
}  # fmt: skip
"""Kind of event to what is said; {s} is the subject, {o} who tells it."""
SHARED = {
    "started": "{s} began", "stopped": "{s} were told to leave", "joined": "{s} joined", "left": "{s} left",
    "away": "{s} went away", "unreachable": "{s} are cut off", "failed": "{s} are taken for dead",
    "returned": "{s} are back", "dismissed": "{s} were dismissed", "revoked": "{s} were shut out",
}  # fmt: skip
"""The same of several subjects."""
AUTOPILOT = {
    "fix": "{o} lost its fix", "link": "{o} lost its autopilot", "mode": "{o} changed its mode",
    "arming": "{o} was armed",
}  # fmt: skip
"""Subject of an `autopilot` event to what is said."""
_SELF = ("started", "stopped", "reloaded")
"""The subject is who tells it."""
_ALONE = tuple(kind for kind, text in KINDS.items() if "{s}" not in text and "{o}" not in text)
"""Nobody in particular."""
WAITING = {
    "hot-spot": "hot spot", "cracking": "crack", "diode": "diode fault", "soiling": "dirty module",
    "vegetation": "plant", "offline-module": "dead module", "cell": "cell fault", "shadowing": "shadow",
}  # fmt: skip
NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ROLES = ("drone", "rover", "camera", "station", "node")
ARROW = "\n=>"
"""Between prompt and report."""
LINES_MAX = 5


@dataclass(frozen=True, slots=True)
class Told:
    """One line of a prompt."""

    origin: str
    kind: str
    """"" for things that wait."""
    subject: str
    row: int = 0
    """0: no place."""

    @property
    def line(self) -> str:
        """As it stands in the prompt."""
        if not self.kind:
            return f"{self.origin} {self.subject} review"
        words = " ".join(filter(None, (self.origin, self.kind, self.subject)))
        return f"{words} near row {self.row}" if self.row else words


def draw(rng: random.Random) -> list[Told]:
    """What happened, one to `LINES_MAX` lines."""
    lines: list[Told] = []
    count = rng.randint(1, LINES_MAX)
    while len(lines) < count:
        if rng.random() < 0.2:
            lines.append(Told(str(_number(rng, 30)), "", rng.choice(tuple(WAITING))))
        elif rng.random() < 0.2:
            lines.append(Told(_name(rng), "autopilot", rng.choice(tuple(AUTOPILOT)), _row(rng)))
        else:
            kinds = [one.kind for one in lines if one.kind in SHARED]
            kind = rng.choice(kinds) if kinds and rng.random() < 0.4 else rng.choice(tuple(KINDS))
            origin = _name(rng)
            is_of_other = "{s}" in KINDS[kind] and kind not in _SELF
            subject = _name(rng) if is_of_other else origin if kind in _SELF else ""
            lines.append(Told(origin, kind, subject, _row(rng) if kind == "failed" else 0))
    return lines


def prompt_of(lines: list[Told]) -> str:
    """The prompt, without the arrow."""
    return "\n".join(one.line for one in lines)


def report_of(lines: list[Told]) -> str:
    """The one right report.

    >>> report_of([Told("drone-4", "autopilot", "fix", 12), Told("a", "failed", "drone-7"), Told("3", "", "hot-spot")])
    'Drone 4 lost its fix near row 12; drone 7 is taken for dead; three hot spots wait for review.'
    """
    groups: dict[tuple[str, ...], list[Told]] = {}
    for one in lines:
        if one.kind in SHARED and not one.row:
            key: tuple[str, ...] = (one.kind,)
        elif one.kind in _ALONE:
            key = (one.kind,)
        else:
            key = (one.kind, one.origin, one.subject, str(one.row))
            if one.kind in SHARED or one.kind in _SELF:
                key = (one.kind, one.subject, str(one.row))
        groups.setdefault(key, []).append(one)
    text = "; ".join(_clause(group) for group in groups.values())
    return text[:1].upper() + text[1:] + "."


def _clause(group: list[Told]) -> str:
    first = group[0]
    if not first.kind:
        count, what = int(first.origin), WAITING[first.subject]
        number = NUMBERS[count] if count < len(NUMBERS) else str(count)
        return f"{number} {what} waits for review" if count == 1 else f"{number} {what}s wait for review"
    subjects = list(dict.fromkeys(one.subject for one in group))
    if first.kind == "autopilot":
        text = AUTOPILOT[first.subject].format(o=_spoken(first.origin))
    elif len(subjects) > 1:
        text = SHARED[first.kind].format(s=_listed([_spoken(one) for one in subjects]))
    else:
        text = KINDS[first.kind].format(s=_spoken(first.subject), o=_spoken(first.origin))
    return f"{text} near row {first.row}" if first.row else text


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _spoken(name: str) -> str:
    role, _, number = name.partition("-")
    return f"{role} {number}" if role in _ROLES and number else name


def _name(rng: random.Random) -> str:
    if rng.random() < 0.1:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 6)))
    role = rng.choice(_ROLES) if rng.random() < 0.4 else "drone"
    return f"{role}-{_number(rng, 200)}"


def _number(rng: random.Random, most: int) -> int:
    return rng.randint(1, 12 if rng.random() < 0.6 else most)


def _row(rng: random.Random) -> int:
    return _number(rng, 99) if rng.random() < 0.4 else 0
