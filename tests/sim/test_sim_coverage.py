"""The coverage matrix as it goes into the docs."""

from swarmd_sim.coverage import Coverage


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
