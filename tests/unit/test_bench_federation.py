"""What the bench of many gateways does to a pipe and to the region, and when."""

from signal import SIGCONT, SIGKILL, SIGSTOP

from tests.bench.bench_federation import acts


def test_a_pipe_is_frozen_and_let_go_and_the_region_apart_from_it() -> None:
    assert acts(0.0, "", "") == []
    assert acts(0.0, "10:8", "") == [(10.0, "pipe", SIGSTOP), (18.0, "pipe", SIGCONT)]
    assert acts(0.0, "10", "4:8") == [(4.0, "region", SIGSTOP), (10.0, "pipe", SIGSTOP), (12.0, "region", SIGCONT)]
    assert acts(3.0, "", "") == [(3.0, "pipe", SIGKILL)]
