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


def claims_of(member):
    return member.replica._projection.survey.claims


def check_slow_news_makes_no_two_work():
    """News takes 2.2 to 2.5 s to everybody, and as long back."""
    for seed in range(3):
        survey = Later(6, 3, seed, loss=0.0, delay_ms=(2_200, 2_500))
        survey.fly(400)
        assert survey.both_s == 0, f"seed {seed}: two at work on one cell for {survey.both_s} s"
        yield [
            claims_of(member).delays.settle_ns(member.local_ns(survey.mesh.now_ns)) for member in survey.mesh.members
        ]


def test_slow_news_makes_no_two_work():
    for settles_ns in check_slow_news_makes_no_two_work():
        assert all(4_400 * MS <= settle_ns <= 5_000 * MS for settle_ns in settles_ns), settles_ns


def test_the_law_sees_a_settle_that_is_always_the_same(monkeypatch):
    def always(self, now_ns):
        return ClaimConfig().settle_ns

    def law():
        return list(check_slow_news_makes_no_two_work())

    assert_found(lambda patch: patch.setattr(Delays, "settle_ns", always), law, monkeypatch)


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
