"""Status and counters: one signature for both, at most one record a period, and a crowd's first ones one by one."""

import msgspec
import pytest

from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state import author as author_module
from swarmd_protocols.state.crdt import records
from swarmd_protocols.state.crdt.batch import Stream
from swarmd_protocols.state.crdt.records import decode_counters, decode_vitals, encode_counters
from swarmd_protocols.state.observations import Count, StatusReport
from swarmd_protocols.state.vitals import Vitals
from tests.support.state_mesh import Mesh, S

NODE = NodeId(b"\1" * 16)


def said(mesh, of, at=0):
    """Streams of the records that one member holds of another."""
    log = mesh.members[at].replica._holdings.store.logs.get(mesh.members[of].node)
    return [] if log is None else sorted(stream for stream, _ in log.records)


def status(mesh, of, at=0):
    return mesh.members[at].replica.views.status(mesh.members[of].node)


def test_status_goes_under_the_signature_of_the_counters():
    mesh = Mesh(20, seed=4)
    mesh.run(1)
    for second in range(30):
        for index in range(20):
            if second % 5 == 0:
                mesh.command(index, Count((("frames", 1),)))
            if second % 10 == 1:
                mesh.command(index, StatusReport(b"status %d" % second))
        mesh.run(1)
    mesh.run(20)
    for index in range(1, 20):
        assert said(mesh, index) == [Stream.COUNTERS]
        assert status(mesh, index) == b"status 21"
        record = mesh.members[index].replica._holdings.store.logs[mesh.members[index].node].records
        assert len(record) == 1, "and nothing else is kept of it, here or anywhere"


def test_a_reader_of_counters_alone_reads_them_as_before():
    body = encode_counters({"frames": 7}, b"well")
    assert decode_counters(body) == {"frames": 7}
    older = msgspec.msgpack.Decoder(records._Counters).decode(body)
    assert older.names == ("frames",)
    assert encode_counters({"frames": 7}) == encode_counters({"frames": 7}, b"")
    assert decode_vitals(encode_counters({}, b"well")) == records.VitalsRecord({}, b"well")


def test_a_status_beside_counters_has_the_bound_of_one_alone():
    body = msgspec.msgpack.encode([[], b"", bytes(records.STATUS_MAX_BYTES + 1)])
    with pytest.raises(WireError, match="status"):
        decode_vitals(body)


def test_what_does_not_fit_beside_the_counters_has_its_own_record():
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(bytes(900)))
    mesh.run(12)
    assert status(mesh, 1) == bytes(900)
    assert said(mesh, 1) == [Stream.COUNTERS, Stream.STATUS]


def check_a_status_that_no_longer_fits_stays():
    """It rode with the counters, which have become too many: they go on alone, and it is said once more."""
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(b"a" * 400))
    mesh.run(12)
    assert (status(mesh, 1), said(mesh, 1)) == (b"a" * 400, [Stream.COUNTERS])
    mesh.command(1, Count(tuple((f"counter of a long name, number {n:015d}", 1) for n in range(15))))
    mesh.run(20)
    late = mesh.newcomer(9)
    mesh.run(20)
    assert late.replica.views.status(mesh.members[1].node) == status(mesh, 1) == b"a" * 400
    assert len(late.replica.views.counters()) == 16


def test_a_status_that_no_longer_fits_stays():
    check_a_status_that_no_longer_fits_stays()


def check_a_new_life_goes_on_with_the_status():
    """Its first counters replace those of the life before, which carried the status."""
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(b"well"))
    mesh.run(12)
    mesh.crash(1)
    mesh.boot(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.run(12)
    assert status(mesh, 1) == status(mesh, 1, at=1) == b"well"
    assert mesh.replicas[0].views.counter_sums() == {"frames": 2}


def test_a_new_life_goes_on_with_the_status():
    check_a_new_life_goes_on_with_the_status()


MANY = Count(tuple((f"counter of a long name, number {n:015d}", 1) for n in range(15)))
"""So many that no status of 400 bytes fits beside them."""


def check_a_new_life_whose_counters_have_grown_keeps_the_status():
    """Its first counters replace those of the life before, and have no room for the status that went with these."""
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(b"a" * 400))
    mesh.run(12)
    for _ in range(2):
        mesh.crash(1)
        mesh.boot(1)
        mesh.command(1, MANY)
        mesh.run(20)
        assert status(mesh, 1) == status(mesh, 1, at=1) == b"a" * 400
        assert len(mesh.replicas[0].views.counters()) == 16


def test_a_new_life_whose_counters_have_grown_keeps_the_status():
    check_a_new_life_whose_counters_have_grown_keeps_the_status()


def test_counters_on_disk_alone_do_not_take_the_status_away():
    """They are journalled at once and said later: who dies in between still knows what it had said of itself."""
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(b"a" * 400))
    mesh.run(12)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, MANY)
    mesh.crash(1)
    mesh.boot(1)
    mesh.run(20)
    assert status(mesh, 1) == status(mesh, 1, at=1) == b"a" * 400


def mesh_of_a_status_taken_back():
    """One is said alone, the next goes beside counters, and then none holds."""
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, StatusReport(b"old"))
    mesh.run(12)
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(b"new"))
    mesh.run(12)
    assert (status(mesh, 1), said(mesh, 1)) == (b"new", [Stream.COUNTERS, Stream.STATUS])
    mesh.command(1, Count((("frames", 1),)))
    mesh.command(1, StatusReport(b""))
    mesh.command(1, Count((("frames", 1),)))
    return mesh


def check_a_status_that_is_taken_back_stays_away():
    mesh = mesh_of_a_status_taken_back()
    mesh.run(12)
    late = mesh.newcomer(9)
    mesh.run(20)
    assert status(mesh, 1) is status(mesh, 1, at=1) is late.replica.views.status(mesh.members[1].node) is None
    mesh.crash(1)
    mesh.boot(1)
    mesh.command(1, Count((("frames", 1),)))
    mesh.run(12)
    assert status(mesh, 1) is status(mesh, 1, at=1) is None
    mesh.command(1, StatusReport(b"newer"))
    mesh.run(12)
    assert status(mesh, 1) == status(mesh, 1, at=1) == b"newer"


def test_a_status_that_is_taken_back_stays_away():
    check_a_status_that_is_taken_back_stays_away()


def test_a_status_that_is_taken_back_stays_away_though_its_node_dies_at_once():
    mesh = mesh_of_a_status_taken_back()
    mesh.crash(1)
    mesh.boot(1)
    mesh.run(20)
    assert status(mesh, 1) is status(mesh, 1, at=1) is None


def test_a_status_alone_that_is_taken_back_is_nowhere_any_more():
    mesh = Mesh(3)
    mesh.run(1)
    mesh.command(1, StatusReport(b"old"))
    mesh.run(12)
    mesh.command(1, StatusReport(b""))
    mesh.run(12)
    assert status(mesh, 1) is status(mesh, 1, at=1) is None


def check_a_status_beside_counters_is_not_said_alone_too():
    """Both wait and are due together, in either order: one signature says them."""
    mesh = Mesh(3)
    mesh.run(1)
    author = mesh.replicas[1]._author
    for waiting in ((Stream.STATUS, Stream.COUNTERS), (Stream.COUNTERS, Stream.STATUS)):
        author.counters["frames"], author._status = 1, b"well"
        author._dirty.update(dict.fromkeys(waiting))
        author.take_said()
        author.say_vitals([], mesh.now_ns + 3_600 * S)
        assert [batch.stream for batch in author.take_said()] == [Stream.COUNTERS]
        author._said_ns.clear()


def test_a_status_beside_counters_is_not_said_alone_too():
    check_a_status_beside_counters_is_not_said_alone_too()


def test_the_latest_status_is_of_the_latest_life_and_in_it_of_the_latest_stamp():
    vitals = Vitals()
    vitals.take_status(NODE, Stream.STATUS, (5, 9), 300, b"alone")
    vitals.take_status(NODE, Stream.COUNTERS, (5, 2), 400, b"beside counters")
    vitals.take_status(NODE, Stream.COUNTERS, (4, 7), 900, b"of a life whose disk was lost")
    assert vitals.status(NODE) == b"beside counters"
    vitals.drop_status(NODE, Stream.COUNTERS, 5)
    assert vitals.status(NODE) == b"alone"
    vitals.drop_status(NODE, Stream.STATUS, 5)
    vitals.drop_status(NODE, Stream.COUNTERS, 4)
    assert vitals.status(NODE) is None


CROWD = 72
"""Stretched to 40 s, a period leaves 20 s for the first records of a crowd."""


def said_first(seconds):
    """Of a crowd that begins together and has something to say at once: how many have said it after these times."""
    mesh = Mesh(CROWD, seed=2)
    for index in range(CROWD):
        mesh.command(index, Count((("frames", 1),)))
        mesh.command(index, StatusReport(b"well"))
    counts = []
    for until_s in seconds:
        mesh.run(until_s - (mesh.now_ns / S - 1))
        counts.append(sum(Stream.COUNTERS in said(mesh, index, at=index) for index in range(CROWD)))
    return counts


def check_a_crowd_says_its_first_records_one_by_one():
    early, half, late = said_first((1, 11, 22))
    assert early <= CROWD // 4
    assert CROWD // 3 <= half <= 2 * CROWD // 3
    assert late == CROWD


def test_a_crowd_says_its_first_records_one_by_one():
    check_a_crowd_says_its_first_records_one_by_one()


def test_the_law_sees_a_crowd_that_speaks_at_once(monkeypatch):
    monkeypatch.setattr(author_module, "_FIRST_AT_ONCE", 1_000)
    with pytest.raises(AssertionError):
        check_a_crowd_says_its_first_records_one_by_one()
