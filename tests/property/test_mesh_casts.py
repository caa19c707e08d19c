"""What casts are for: the same swarm, told with fewer packets and bytes, where a node hears several others."""

import pytest

from tests.support.mesh_net import MeshNet

SECONDS = 30


def ring(count: int, reach: int) -> set[tuple[int, int]]:
    """Each hears so many on each side."""
    pairs = ((at, (at + far) % count) for at in range(count) for far in range(1, reach + 1))
    return {(min(pair), max(pair)) for pair in pairs}


def sent(net: MeshNet) -> tuple[int, int]:
    """Packets and bytes that all nodes have sent; a cast is one packet."""
    kinds = [("datagrams_out", "datagram_bytes_out"), ("streams_out", "stream_bytes_out")]
    kinds += [("casts_out", "cast_bytes_out")] if net.hosts[0].node._core.config.casts else []
    counters = [host.node._core.counters for host in net.hosts]
    return tuple(sum(counts[kind[at]] for counts in counters for kind in kinds) for at in (0, 1))  # type: ignore[return-value]


@pytest.mark.parametrize(("count", "reach"), [(16, 3), (24, 8)])
def test_what_is_cast_spares_packets(count: int, reach: int) -> None:
    """Half a minute that begins as all have formed: reports settle, and then nothing happens."""
    spent = []
    for casts in (True, False):
        net = MeshNet(count, ring(count, reach), 1, casts=casts)
        assert net.run_until(net.formed, 60) is not None
        before = sent(net)
        net.run(SECONDS)
        assert net.formed()
        assert net.failures() == []
        spent.append([after - held for after, held in zip(sent(net), before, strict=True)])
    (packets, size), (packets_without, size_without) = spent
    assert packets < 0.9 * packets_without, (packets, packets_without)
    assert size < 0.6 * size_without, (size, size_without)
