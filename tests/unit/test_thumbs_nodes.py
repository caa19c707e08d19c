"""Thumbnails inside whole nodes, over sealed frames: members get them, who is revoked gets nothing any more."""

from swarmd_protocols.effects import Command, StateChanged
from swarmd_protocols.ids import NodeId
from swarmd_protocols.thumbs.form import name_of
from swarmd_protocols.thumbs.requests import Fetch, Shelve, ThumbLearned
from swarmd_protocols.thumbs.thumbs import Thumbs, ThumbsConfig
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds, make_dev_identity
from swarmd_protocols.trust.payloads import Revocation
from swarmd_protocols.trust.requests import AddStatement
from swarmd_sim.run.thumbs import picture_of
from tests.support.swim_net import SECRET, Net

PICTURES = [picture_of(number) for number in range(4)]
NAMES = [name_of(jpeg) for jpeg in PICTURES]


class Swarm(Net):
    """Three nodes; the first has seen four things."""

    def __init__(self) -> None:
        self.thumbs: dict[int, Thumbs] = {}
        super().__init__(3, subs=self.composed)
        self.run(5)
        for jpeg in PICTURES:
            self.feed(0, Command("thumbs", Shelve(jpeg)))

    def composed(self, index: int) -> list[Thumbs]:
        node, first = (make_dev_identity(SECRET, "test", f"n00{one}", self.crypto).node for one in (index, 0))
        live = frozenset(NAMES if index == 0 else ())
        self.thumbs[index] = Thumbs(node, ThumbsConfig(), {}, lambda: live, lambda name: [NodeId(first)])
        return [self.thumbs[index]]

    def shown(self, index: int) -> list[ThumbLearned]:
        told = [effect.detail for _, at, effect in self.log if at == index and isinstance(effect, StateChanged)]
        return [one for one in told if isinstance(one, ThumbLearned)]


def test_a_member_gets_it_and_whoever_is_revoked_does_not() -> None:
    net = Swarm()
    for index in (1, 2):
        net.feed(index, Command("thumbs", Fetch(NAMES[index])))
    net.run(2)
    assert [net.shown(index) for index in (1, 2)] == [[ThumbLearned(NAMES[index], PICTURES[index])] for index in (1, 2)]
    thief = net.hosts[2].node.node
    revoke = dev_role_seeds(SECRET, "revoke")[:1]
    statement = sign_statement("revoke", Revocation("test", 1, (thief,), "stolen"), revoke, net.crypto)
    for index in (0, 1):
        net.feed(index, Command("node", AddStatement("revoke", statement)))
    given = net.thumbs[0].counts()["given"]
    net.feed(2, Command("thumbs", Fetch(NAMES[3])))
    net.feed(1, Command("thumbs", Fetch(NAMES[0])))
    net.run(12)
    assert net.thumbs[0].counts()["given"] == given + 1
    assert [one.jpeg for one in net.shown(1)] == [PICTURES[1], PICTURES[0]]
    assert [one.jpeg for one in net.shown(2)] in ([PICTURES[2]], [PICTURES[2], b""])
