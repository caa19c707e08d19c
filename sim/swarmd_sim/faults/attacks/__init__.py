"""What a thief can do with one stolen node key, or a stranger with none: one function a kind, gathered in `ATTACKS`.

    outside.py    without any key: noise, replays and borrowed addresses at every member's socket
    members.py    membership: accusations without end, storms of events and metadata, questions that cost answers
    state.py      the replicated state: invented authors, rows that cost more than their bytes, stale and future facts
    releases.py   models: signatures taken away, votes on what is decided, statements nobody may sign
    stolen.py     officers' keys: too few of those in force, all of those that were replaced
    lies.py       what is said differs by whom it is said to, or claims to hold what nobody has
    lending.py    borrowed inference: offers too good to be true, lies, garbage, silence, floods
    trust.py      the fleet's own statements: root chains, certificates and group keys of one's own making

Each attack is called some times a second while its fault lasts and does one stroke; `Thief.acted` counts the strokes
that left the hostile host, so that a test can tell an attack from one that only seems to run.
"""

from collections.abc import Mapping

from swarmd_sim.faults.attacks.lending import LENDING_ATTACKS
from swarmd_sim.faults.attacks.lies import LIES
from swarmd_sim.faults.attacks.members import MEMBER_ATTACKS
from swarmd_sim.faults.attacks.outside import OUTSIDE_ATTACKS
from swarmd_sim.faults.attacks.releases import RELEASE_ATTACKS
from swarmd_sim.faults.attacks.state import STATE_ATTACKS
from swarmd_sim.faults.attacks.stolen import STOLEN_ATTACKS
from swarmd_sim.faults.attacks.thief import Stroke
from swarmd_sim.faults.attacks.trust import TRUST_ATTACKS

ATTACKS: Mapping[str, Stroke] = {
    **OUTSIDE_ATTACKS,
    **MEMBER_ATTACKS,
    **STATE_ATTACKS,
    **RELEASE_ATTACKS,
    **LIES,
    **TRUST_ATTACKS,
    **STOLEN_ATTACKS,
    **LENDING_ATTACKS,
}
"""Every attack by its kind."""
