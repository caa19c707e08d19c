"""An author of a mesh whose key is in other hands: it writes whatever it likes, well signed."""

from swarmd_protocols.ids import NodeId, node_id_of
from swarmd_protocols.state.crdt.batch import Batch, Dot, NodeSigner, Stream, seal_batch
from swarmd_protocols.state.crdt.facts import Facts, encode_facts
from tests.bench.hostile_state import Pen as BenchPen
from tests.support.state_mesh import CRYPTO


class Pen(BenchPen):
    """The benchmark's, in the model's arithmetic."""

    @property
    def node(self) -> NodeId:
        return node_of(self.seed)

    def write(self, facts: Facts, stamp: int = 1 << 16, base: Dot = (0, 0)) -> Batch:
        self.n += 1
        signer = NodeSigner(CRYPTO, self.seed)
        batch = seal_batch(
            Stream.FACTS, self.node, (self.life, self.n), base, self.previous, stamp, encode_facts(facts), signer
        )
        self.previous = batch.digest
        return batch


def node_of(seed: bytes) -> NodeId:
    return node_id_of(CRYPTO.public_key(seed))


def pen_of(index: int) -> Pen:
    return Pen(bytes([index & 255, index >> 8]) + bytes(30))
