"""The coverage matrix, and the scripts that are drawn so that it fills."""

from swarmd_sim.faults.faults import FAULT_KINDS, MOMENTS, Fault, draw_script
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.coverage import UNREACHABLE, Coverage, ProtocolState, reachable_pairs

S = 1_000_000_000


def test_the_matrix_tells_not_hit_from_not_possible() -> None:
    coverage = Coverage({("kill", "steady"): 3, ("loss", "down"): 2})
    head, _rule, kill, loss = coverage.lines(["kill", "loss"])
    columns = [cell.strip() for cell in head.split("|")]
    cells_of_kill = [cell.strip() for cell in kill.split("|")]
    cells_of_loss = [cell.strip() for cell in loss.split("|")]
    assert cells_of_kill[columns.index("steady")] == "3"
    assert cells_of_kill[columns.index("joining")] == "0"
    assert cells_of_kill[columns.index("down")] == ""
    assert cells_of_loss[columns.index("down")] == "2"


def test_every_pair_is_reachable_or_has_a_reason() -> None:
    pairs = {(kind, state.value) for kind in FAULT_KINDS for state in ProtocolState}
    assert set(reachable_pairs()) | set(UNREACHABLE) == pairs
    assert not set(reachable_pairs()) & set(UNREACHABLE)
    assert all(len(reason) > 10 for reason in UNREACHABLE.values())
    assert {moment.state for moment in MOMENTS} <= {state.value for state in ProtocolState}
    assert all(maker in FAULT_KINDS for moment in MOMENTS for maker in moment.makers)


def script(seed: int, kinds: tuple[str, ...] = ("all",)) -> list[Fault]:
    return draw_script(Choices(seed), kinds, 7, 15, 3 * S, 50 * S, 40 * S, (6 * S,))


def test_drawn_faults_keep_to_the_window_and_the_vocabulary() -> None:
    for seed in range(300):
        for fault in script(seed):
            assert 3 * S <= fault.at_ns <= fault.end_ns <= 50 * S
            assert fault.kind in FAULT_KINDS
            assert fault.nodes
            assert all(0 <= node < 7 for node in fault.nodes)
        assert script(seed) == script(seed)


def test_faults_are_aimed_at_what_other_faults_bring_about() -> None:
    """At a node that is leaving (its first 1.4 s), which a blind draw would hit once in a thousand faults."""
    aimed = drawn = 0
    for seed in range(2_000):
        faults = script(seed)
        leaves = [fault for fault in faults if fault.kind == "leave"]
        drawn += len(faults)
        aimed += sum(
            any(leave is not fault and 0 <= fault.at_ns - leave.at_ns < 1_400_000_000 for leave in leaves)
            for fault in faults
        )
    assert aimed > drawn / 200
