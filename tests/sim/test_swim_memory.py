"""What membership holds does not grow with the lives of others: counted in objects, not in time."""

import pytest

from swarmd_protocols.swim import prober
from swarmd_protocols.swim.members import Probe
from tests.support.held import held
from tests.support.swim_net import Net


def open_pings(deaths: int) -> tuple[int, int]:
    """Pings that one of four awaits, and probes that it holds, after so many deaths of two others at 5 % loss."""
    net = Net(4, loss=0.05)
    assert net.run_until(lambda: net.formed() and net.agreed(), 10) is not None
    for death in range(deaths):
        victim = 2 + death % 2
        net.kill(victim)
        net.run(3.0)
        net.restart(victim)
        net.run(2.0)
    witness = net.hosts[0].node
    probes = held(witness, without=(net.crypto,))[0][Probe.__name__]
    return len(witness._swim.membership.prober.open), probes


def test_pings_to_the_dead_are_awaited_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute holds twelve deaths, with some eight pings each, and what losses leave open."""
    assert open_pings(30)[0] <= 12 * 12
    few, many = open_pings(30)[1], open_pings(90)[1]
    assert many <= 1.5 * few
    monkeypatch.setattr(prober, "_AWAITED_NS", 10**18)
    assert open_pings(90)[1] > 2 * many
