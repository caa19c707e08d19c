"""What a region shows of a node's status is what the node said last; what it calls stale, whatever its clock did."""

from pathlib import Path

import msgspec

from swarmd.federation.rows import ObjectQuery
from swarmd.federation.store import Store
from swarmd_protocols.crypto import ModelCrypto
from swarmd_protocols.federation.gate import Pin, RecordRow, _record
from swarmd_protocols.federation.wire import SiteRow
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.crdt.batch import Stream
from swarmd_protocols.state.observations import Count, StatusReport
from swarmd_protocols.trust.identity import dev_root
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


def test_a_site_that_was_heard_while_the_clock_was_ahead_is_stale_once_it_is_silent(tmp_path: Path) -> None:
    pin = Pin("far", "far", dev_root(b"the secret of a swarm", ModelCrypto()))
    store = Store(tmp_path / "region.db")
    store.know_swarms([pin])
    now_ms, year_ms = 1_790_000_000_000, 31_536_000_000
    with store.transaction():
        site = SiteRow(now_ms, 1, 1, 1, 1, 0, 0, False, 0, 0, "")
        store.put_site(pin.key.hex(), NodeId(bytes(16)), site, now_ms + year_ms)
    for later_ms, is_stale in ((-20, False), (60_000, True), (60_000 - year_ms, True)):
        [answer] = store.objects(ObjectQuery(), now_ms + year_ms + later_ms, 30_000).sites
        assert answer.stale is is_stale
    store.close()
