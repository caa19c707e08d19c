"""Ways and bytes of the relay: pure functions by property, and what a near member may say."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmd_protocols.swim.mesh import relay
from swarmd_protocols.swim.mesh.graph import KEY_BYTES, reached
from swarmd_protocols.swim.mesh.relay_words import Onward, Taken
from swarmd_protocols.swim.mesh.routes import Routes
from tests.support.mesh_net import MeshNet
from tests.support.relay_net import formed, relay_of

KEYS = [bytes((index,)) * KEY_BYTES for index in range(7)]
graphs = st.dictionaries(
    st.sampled_from(KEYS[1:]), st.dictionaries(st.sampled_from(KEYS), st.integers(4, 15), max_size=4), max_size=6
)


@given(st.dictionaries(st.sampled_from(KEYS[1:]), st.integers(4, 15), max_size=4), graphs, st.sampled_from(KEYS[1:]))
def test_a_way_leads_there_and_not_through_this_node(
    near: dict[bytes, int], links: dict[bytes, dict[bytes, int]], target: bytes
) -> None:
    # What both ends report is the same both ways.
    both = {a: {b: c for b, c in heard.items() if b == KEYS[0] or a in links.get(b, {})} for a, heard in links.items()}
    routes = Routes()
    routes.know(KEYS[0], near, both)
    rest = reached(target, both.get(target, {}), both)
    for way in routes.ways(target):
        assert way.cost == near[way.near] + way.rest
        assert way.rest == rest[way.near]
    mutual = [key for key in near if KEYS[0] in both.get(key, KEYS[:1])]
    assert sorted(way.near for way in routes.ways(target)) == sorted(key for key in mutual if key in rest)
    assert list(routes.ways(target)) == sorted(routes.ways(target))


@settings(max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=1_200),
        st.builds(
            lambda *fields: msgspec.msgpack.encode(Onward(*fields)),
            st.binary(min_size=16, max_size=16),
            st.integers(-1, 300),
            st.integers(-1, 2**40),
            st.booleans(),
            st.binary(max_size=9),
            st.integers(-1, 99),
            st.integers(-1, 99),
            st.binary(max_size=1_100),
        ),
        st.builds(lambda name: msgspec.msgpack.encode(Taken(name)), st.binary(max_size=9)),
    )
)
def test_no_bytes_raise_or_pile_up(payload: bytes) -> None:
    net = _standing()
    one, near = relay_of(net, 1), net.hosts[0].node.node
    net.hosts[1].node._core.now_ns = net.now
    one.on_message(near, payload, net.now)
    assert len(one._held) <= relay.HELD_SHARE
    assert len(one._wholes) <= 8
    assert len(one._seen) <= 4_096


_NET: list[MeshNet] = []


def _standing() -> MeshNet:
    """One net for all examples: what piles up would pile up over them."""
    if not _NET:
        _NET.append(formed(4))
    return _NET[0]
