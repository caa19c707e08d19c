"""The whole story on four real daemons (about half a minute)."""

import asyncio

import pytest

from swarmd.demo.release import ReleaseDemo


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_release_lives_and_a_bad_one_is_taken_back() -> None:
    summary = asyncio.run(ReleaseDemo(lambda text: None).run())
    assert set(summary["final_versions"].values()) == {2}
    assert len(summary["final_versions"]) == 4
    assert summary["halted"] == 3
    assert summary["frames_lost"] == 0
    assert summary["drift"] == 0
    assert summary["delta_ratio"] < 0.3
    assert summary["recipe"]["after"]["loss"] < summary["recipe"]["before"]["loss"]
    assert summary["audit_lines"] > 10
