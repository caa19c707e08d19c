"""Claims where news is slow: what nodes measure of each other's answers and records decides how long a claim stands."""

from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.claims.delays import Delays
from tests.sim.test_claims_swarm import Survey
from tests.support.mutants import assert_found
from tests.support.state_mesh import MS, S


class Later(Survey):
    """Drones that have been up for a while when they are told what to survey."""

    up_s = 20.0

    def start(self, index):
        if index == 0:
            self.mesh.run(self.up_s)
        super().start(index)


def check_slow_news_makes_no_two_work():
    """News takes 1.2 to 1.4 s to everybody, and as long back."""
    for seed in range(3):
        survey = Later(6, 3, seed, loss=0.0, delay_ms=(1_200, 1_400))
        survey.fly(400)
        settles = [replica._projection.survey.claims.delays.settle_ns() for replica in survey.mesh.replicas]
        assert survey.both_s == 0, f"seed {seed}"
        assert survey.duplicates == 0
        assert all(2_400 * MS <= settle_ns <= 2_900 * MS for settle_ns in settles), settles


def test_slow_news_makes_no_two_work():
    check_slow_news_makes_no_two_work()


def test_the_law_sees_a_settle_that_is_always_the_same(monkeypatch):
    def always(self):
        return ClaimConfig().settle_ns

    assert_found(
        lambda patch: patch.setattr(Delays, "settle_ns", always), check_slow_news_makes_no_two_work, monkeypatch
    )


def measured_ms(mesh):
    found = [replica._projection.survey.claims.delays._late for replica in mesh.replicas]
    return [late_ns // 2 // MS for late in found for measured in late.values() for late_ns in measured]


def test_records_are_late_by_what_they_take_and_not_by_a_cut():
    """Clocks of a common time; leases are said at work, and one who was away hears of all when it is back."""
    survey = Later(4, 4, 1, loss=0.0, delay_ms=(80, 100), wall=True)
    while survey.mesh.now_ns < 60 * S:
        survey.step()
    late_ms = measured_ms(survey.mesh)
    assert len(late_ms) > 20
    assert all(75 <= late <= 110 for late in late_ms), sorted(late_ms)
    survey.mesh.partition(lambda index: int(index == 3))
    while survey.mesh.now_ns < 80 * S:
        survey.step()
    survey.mesh.partition(lambda index: 0)
    survey.mesh.run(3)
    assert max(measured_ms(survey.mesh)) <= 110


def test_a_clock_that_is_not_sure_measures_nothing():
    survey = Survey(4, 4, 1, loss=0.0, delay_ms=(80, 100))
    while survey.mesh.now_ns < 15 * S:
        survey.step()
    assert survey.inspections
    assert not measured_ms(survey.mesh)
    assert all(len(replica._projection.survey.claims.delays) == 3 for replica in survey.mesh.replicas), "answers do"
