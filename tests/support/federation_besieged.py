"""What pipes, clocks, copies of files and stolen keys do to a region and its gateways: laws, each in a folder of its
own."""

from pathlib import Path

from swarmd_protocols.errors import IdentityError
from swarmd_protocols.federation.gate import Gate, Heard, Pin
from swarmd_protocols.federation.wire import RowKind
from tests.support.state_mesh import CRYPTO as MESH_CRYPTO
from tests.unit.test_federation_publisher import ALL, Site


async def a_statement_that_overtakes_its_root_arrives(folder: Path) -> None:
    """Two new roots while the region was away, whose frames come in the wrong order: the region has both in the end."""
    site = Site(folder)
    publisher, outbox = site.publishers[0], site.outboxes[0]
    publisher.claim(ALL, 1)
    gate = Gate(Pin("mesh", "mesh", site.daemons[0].first_root), bytes(32), MESH_CRYPTO)
    for _ in range(2):
        site.mesh.rotate_enrol(re_sign=True)
    for rounds in range(4):
        await publisher.scan()
        refused = []
        for seq, _ in reversed(outbox.waiting(1_000)):
            for row in outbox.read([seq]):
                try:
                    gate._row(row, row.proofs, Heard(site.daemons[0].member.node, b"", 1, None))  # type: ignore[arg-type]
                except IdentityError:
                    refused.append(seq)
        assert refused or rounds, "nothing overtakes anything"
        done = outbox.acknowledge([(0, 1 << 40)])
        publisher.on_refused(row for row in done if row.seq in refused)
        assert not await _trust_said(site), "a refused statement comes again at once"
        publisher._again_due_s = 0.0
        if len(gate.trust.roots) == 3:
            break
    assert len(gate.trust.roots) == 3, "a root that overtook the one before it never arrives"
    for each in site.outboxes:
        each.close()


async def _trust_said(site: Site) -> list[int]:
    await site.publishers[0].scan()
    outbox = site.outboxes[0]
    return [row.seq for row in outbox.read([seq for seq, _ in outbox.waiting(1_000)]) if row.kind == RowKind.TRUST]
