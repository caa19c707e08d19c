"""Real daemons on a line, with casts, without, and where one of them is not let out: one swarm, the same results."""

from pathlib import Path

import pytest

from tests.support.daemons import wait_for
from tests.support.namespaces import Networks
from tests.support.radio_line import RadioLine, marks

pytestmark = [*marks(600), pytest.mark.slow]
PATIENCE_S = 120.0
NAMES = "abcd"
CUT = {
    **{name: dict.fromkeys("cd", "unreachable") for name in "ab"},
    **{name: dict.fromkeys("ab", "unreachable") for name in "cd"},
}
DROP_MULTICAST = """
table ip quiet {
    chain out {
        type filter hook output priority 0
        ip daddr 224.0.0.0/4 udp dport 17946 drop
    }
}
"""
COUNTED = ("in", "out", "refused", "sources_known")
SILENT = 2
"""The number of the device whose system lets no multicast out."""


def casts(line: RadioLine) -> list[dict[str, int]]:
    """What each daemon counts of its casts."""
    own = (daemon.ask("counters")["own"] for daemon in line.daemons)
    return [{name: counts.get(f"transport_casts_{name}", 0) for name in COUNTED} for counts in own]


@pytest.mark.parametrize(
    ("transport", "setting", "forbidden"),
    [("udp", "auto", False), ("zmq", "auto", False), ("udp", "off", False), ("udp", "eth0", True)],
)
def test_a_line_is_one_swarm_with_casts_and_without(
    tmp_path: Path, transport: str, setting: str, forbidden: bool
) -> None:
    with Networks() as networks:
        line = RadioLine(
            networks, tmp_path, PATIENCE_S, "--transport", transport, f"TRANSPORT__CASTS={setting}", names=NAMES
        )
        if forbidden:
            networks.exec(networks.device(SILENT), "nft", DROP_MULTICAST)
        try:
            line.start()
            line.tell("over-two-hops")
            line.cut("bc")
            line.see(CUT)
            line.cut()
            line.see(line.all_alive)
            assert line.failures() == []
            counted = casts(line)
            if setting == "off":
                assert not any(count["in"] or count["out"] for count in counted)
            elif forbidden:
                assert counted[SILENT - 1]["out"] == 0
                assert counted[SILENT - 1]["in"] > 0
                silent = line.daemons[SILENT - 1]
                wait_for(lambda: "casts_fail" in silent.log(), "the warning", PATIENCE_S, silent.log)
                said = silent.log()
                assert said.count("casts_fail") == 1
                assert "no casts on eth0: Operation not permitted" in said
                assert "transport.casts = off" in said
            else:
                assert all(count["in"] and count["out"] and not count["refused"] for count in counted)
                assert all(count["sources_known"] for count in counted)
        finally:
            line.close()
