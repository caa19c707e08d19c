"""What a region shows of a node's status is what the node said last, alone or beside counters."""

from pathlib import Path

import msgspec

from swarmd.federation.store import Store
from swarmd_protocols.federation.gate import RecordRow, _record
from swarmd_protocols.state.crdt.batch import Stream
from swarmd_protocols.state.observations import Count, StatusReport
from tests.support.state_mesh import Mesh


def test_a_status_that_is_taken_back_is_not_kept_by_the_region(tmp_path: Path) -> None:
    """It went beside counters of a higher number, and is taken back within the millisecond."""
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(b"well"))
    mesh.run(12)
    mesh.command(1, StatusReport(b""))
    mesh.run(12)
    records = mesh.replicas[0]._holdings.store.logs[mesh.members[1].node].records.values()
    (taken,) = [_record(batch) for batch in records if batch.stream is Stream.STATUS]
    cleared = msgspec.structs.replace(taken, stamp=taken.stamp | 1)
    beside = RecordRow(taken.node, Stream.COUNTERS, taken.incarnation, taken.n + 8, cleared.stamp - 1, b"well")
    for number, rows in enumerate(((beside, cleared), (cleared, beside))):
        store = Store(tmp_path / f"region-{number}.db")
        with store.transaction():
            for row in rows:
                store.put_record("swarm", row)
        assert store._db.execute("SELECT status FROM nodes").fetchall() == [("",)]
        store.close()
