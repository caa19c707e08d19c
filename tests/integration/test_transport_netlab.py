"""Real daemons in the emulated radio network: 30 % loss, one-way blocks, partition and heal.

Needs root and the lab beside the checkout (`../shared/lab/netlab`); skipped, and says so, without.
"""

import signal
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.support import netlab
from tests.support.daemons import PlainDaemon, all_see, wait_for
from tests.support.exclusive import own_name
from tests.support.netlab import Lab

COUNT = 6
SENT_MEANWHILE = 60
"""Datagrams a daemon sends in some 30 periods, pings and answers: what must not happen had the time to."""

pytestmark = netlab.marks(300)


@pytest.fixture(scope="module", params=["udp", "zmq"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One lab for all tests of a transport: each leaves it as it was, the last one excepted."""
    made = Lab(own_name("s" + request.param[0]), tmp_path_factory.mktemp("lab"), COUNT, ["--transport", request.param])
    try:
        made.start()
        yield made
    finally:
        made.close()


def failures(daemons: Sequence[PlainDaemon], since_ns: int) -> set[tuple[str, str]]:
    """Who has printed of whom that it failed since a moment of the shared monotonic clock."""
    return {
        (daemon.name, str(event["subject"]))
        for daemon in daemons
        for event in daemon.events()
        if event["event"] == "failed" and event["t_ns"] >= since_ns
    }


def all_have_probed(daemons: Sequence[PlainDaemon]) -> None:
    """Wait until each has gone through its periods for a while, however long the machine takes for that."""

    def sent() -> list[int]:
        return [daemon.ask("counters")["own"]["node_datagrams_out"] for daemon in daemons]

    began = sent()
    wait_for(
        lambda: all(now - then >= SENT_MEANWHILE for then, now in zip(began, sent(), strict=True)),
        f"{SENT_MEANWHILE} datagrams of each",
        seen=sent,
    )


def test_a_cut_heals_within_seconds(lab: Lab) -> None:
    left, right = lab.daemons[:3], lab.daemons[3:]
    lab("partition", "1,2,3/4,5,6")
    all_see(left, lab.everybody("alive", **{daemon.name: "failed" for daemon in right}))
    all_see(right, lab.everybody("alive", **{daemon.name: "failed" for daemon in left}))
    lab("heal")
    all_see(lab.daemons, lab.everybody("alive"))
    assert all(daemon.alive for daemon in lab.daemons), "nobody had to start anew for it"


def test_a_pair_that_hears_only_one_way_fails_nobody(lab: Lab) -> None:
    lab("block", "2", "5")
    began_ns = time.monotonic_ns()
    all_have_probed(lab.daemons)
    assert failures(lab.daemons, began_ns) == set()
    lab("unblock", "2", "5")
    all_see(lab.daemons, lab.everybody("alive"))


@pytest.mark.parametrize("lab", ["udp"], indirect=True)
def test_nobody_healthy_fails_at_30_percent_loss(lab: Lab) -> None:
    """Over udp only: probes over TCP come late at this loss, as measured, which is why udp is the default."""
    everyone = ",".join(str(i) for i in range(1, COUNT + 1))
    lab("link", everyone, "--loss", "30")
    began_ns = time.monotonic_ns()
    all_have_probed(lab.daemons)
    assert failures(lab.daemons, began_ns) == set()
    lab("link", everyone, "--loss", "0")
    all_see(lab.daemons, lab.everybody("alive"))


def test_a_killed_process_is_known_at_once_and_a_dark_one_soon(lab: Lab) -> None:
    *others, dark, victim = lab.daemons
    began, began_ns = time.monotonic(), time.monotonic_ns()
    victim.stop(signal.SIGKILL)
    all_see([*others, dark], lab.everybody("alive", **{victim.name: "failed"}))
    print(f"the killed one was known after {time.monotonic() - began:.1f} s; the bar of 1.5 s is the bench's")
    lab("partition", f"{COUNT - 1}/{','.join(str(i) for i in range(1, COUNT - 1))},{COUNT}")
    began = time.monotonic()
    all_see(others, lab.everybody("alive", **{victim.name: "failed", dark.name: "failed"}))
    assert {whom for who, whom in failures(others, began_ns)} == {victim.name, dark.name}, "and nobody else"
    print(f"the dark one was known after {time.monotonic() - began:.1f} s; the bar of 4 s is the bench's")
