"""A disk that was full for a while: what it refused is asked for again within seconds, and ever less often."""

from swarmd_protocols.releases.room import MOST_NS, Room

S = 1_000_000_000


def test_it_is_asked_for_again_soon_and_then_ever_less_often() -> None:
    room, now_ns, waits = Room(), 100 * S, []
    for _ in range(8):
        due_ns = room.due_ns(now_ns)
        # Chunks that were on their way are refused beside the first, and mean nothing more.
        assert [room.due_ns(now_ns + late) for late in (1, S // 2)] == [due_ns] * 2
        waits.append((due_ns - now_ns) // S)
        now_ns = due_ns
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert MOST_NS == 30 * S


def test_a_file_that_became_whole_ends_the_waiting() -> None:
    room = Room()
    for at in (10, 20, 30):
        room.due_ns(at * S)
    room.found()
    assert room.due_ns(60 * S) == 61 * S
