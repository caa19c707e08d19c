"""The row about what is known of others' own past."""

import msgspec


class PeerStretch(msgspec.Struct, frozen=True, gc=False):
    """Some time of one node's own past, as that node wrote it down and signed it."""

    node: str
    """Its node id, hexadecimal digits; `never met NAME` of one of which this node knows the name alone."""
    name: str
    from_s: float
    to_s: float
    what: str
    """`whole`: it is here. A gap, and why: `waiting` (it is being fetched), `off` (the node wrote nothing down, by its
    own word), `expired` (dropped for its age or for room), `refused`, `unreachable`, `silent`, `lied`, `revoked`."""
