"""What peers claim to have delivered of an origin's events: when what is missing is given up, on whose word."""

from hypothesis import given
from hypothesis import strategies as st

from swarmd_protocols.swim.event_claims import PATIENCE_NS, Claims
from swarmd_protocols.swim.event_log import LargeRepairs

ORIGIN = b"origin"
HEARD = {b"a", b"b", b"c", b"liar", ORIGIN}
_WORDS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", ORIGIN]), st.integers(1, 50), st.integers(0, PATIENCE_NS))
)


@given(_WORDS)
def test_nothing_is_given_up_that_was_not_claimed_twice_and_a_patience_ago(
    words: list[tuple[bytes, int, int]],
) -> None:
    claims, now_ns, here = Claims(), 0, 0
    said: list[tuple[bytes, int, int]] = []
    for peer, delivered, pause_ns in words:
        now_ns += pause_ns
        up_to = claims.given_up(ORIGIN, here, 2, HEARD, now_ns)
        if up_to:
            for_it = {who for who, word, at_ns in said if word >= up_to and now_ns - at_ns >= PATIENCE_NS}
            assert ORIGIN in for_it or len(for_it) >= 2
            assert up_to > here
            here = up_to
        if delivered > here:
            claims.note(ORIGIN, peer, delivered, here, now_ns)
            said.append((peer, delivered, now_ns))


def test_what_is_claimed_later_is_awaited_from_then_on() -> None:
    claims = Claims()
    for peer in (b"a", b"b"):
        claims.note(ORIGIN, peer, 5, 4, 0)
        claims.note(ORIGIN, peer, 9, 5, PATIENCE_NS - 1)
    assert claims.given_up(ORIGIN, 5, 2, HEARD, PATIENCE_NS) == 0, "what was missing before has come"
    assert claims.given_up(ORIGIN, 5, 2, HEARD, 2 * PATIENCE_NS) == 9


def test_whom_nobody_could_have_told_waits_anew() -> None:
    claims = Claims()
    for peer in (b"a", b"b"):
        claims.note(ORIGIN, peer, 5, 4, 0)
    claims.wait(ORIGIN, PATIENCE_NS)
    assert claims.given_up(ORIGIN, 4, 2, HEARD, PATIENCE_NS) == 0
    assert claims.given_up(ORIGIN, 4, 2, HEARD, 2 * PATIENCE_NS) == 5


def test_of_whom_a_cut_leaves_the_last_lie_of_one_that_is_gone_does_not_decide() -> None:
    claims = Claims()
    claims.note(ORIGIN, b"liar", 500, 0, 0)
    assert claims.given_up(ORIGIN, 0, 1, {ORIGIN}, PATIENCE_NS) == 0, "the origin is here, and would say so itself"
    assert claims.given_up(ORIGIN, 0, 1, {b"liar"}, PATIENCE_NS) == 500


def test_a_liar_s_word_neither_counts_alone_nor_keeps_anybody_from_asking() -> None:
    claims, asked = Claims(), 0
    for at in range(20):
        now_ns = at * PATIENCE_NS // 2
        asked += claims.note(ORIGIN, b"liar", 1 << 60, 4, now_ns)
        assert claims.given_up(ORIGIN, 4, 2, HEARD, now_ns) == 0
        claims.next_due_ns(ORIGIN, now_ns)
    assert asked == 10, "once a patience"
    for number in range(100):
        claims.note(ORIGIN, b"%d" % number, 5, 4, 0)
    assert len(claims._origins[ORIGIN].claims) == 8


def test_what_a_peer_was_sent_reliably_is_not_sent_again_at_once() -> None:
    sent = LargeRepairs()
    sent.note(b"peer", ORIGIN, 7, 0)
    assert sent.reached(b"peer", ORIGIN, PATIENCE_NS // 5) == 7
    assert sent.reached(b"other", ORIGIN, 1) == sent.reached(b"peer", b"other", 1) == 0
    assert sent.reached(b"peer", ORIGIN, PATIENCE_NS // 2) == 0, "twice within the patience"
    for number in range(5_000):
        sent.note(b"%d" % number, ORIGIN, 7, 1)
    assert len(sent) <= 4_096
