"""What must hold of the past from peers, whatever the network and other members do; mutants are held against these."""

from random import Random

import msgspec

from swarmd_protocols.crypto import SIGNATURE_BYTES
from swarmd_protocols.errors import WireError
from swarmd_protocols.past import messages, requests
from swarmd_protocols.past.authors import AUTHORS_MAX
from swarmd_protocols.past.fetching import TIMEOUT_NS
from swarmd_protocols.past.givers import SLOW_NS, WALKS_MAX
from swarmd_protocols.past.giving import GivingConfig
from swarmd_protocols.past.pages import PAGE_MAX_BYTES, PAGE_MAX_MS, holds, read_page
from swarmd_protocols.past.past import PastConfig
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.subprotocol import Peer
from swarmd_protocols.trust.envelopes import sign_statement
from swarmd_protocols.trust.identity import dev_role_seeds
from swarmd_protocols.trust.payloads import Revocation
from tests.support.past_world import BEGIN_MS, CRYPTO, MS, SECRET, S, World, identity, minutes, page

HOUR_MS = 3_600_000


def whats(world: World, at: int, author: int, from_ms: int = BEGIN_MS, to_ms: int = BEGIN_MS + HOUR_MS) -> list[str]:
    """What a member says of another's past, in order."""
    node = world.members[author].node
    return [one.what for one in world.members[at].past.stretches(from_ms, to_ms) if one.author == node]


def everything_held_is_signed(world: World, at: int) -> None:
    one = world.members[at]
    for (author, _), data in one.shelf.pages.items():
        certificate = one.trust.certified(author)
        assert certificate is not None, "a page of nobody is kept"
        assert holds(data, certificate.public_key, NodeSigner(CRYPTO, one.identity.seed)), "an unsigned page is kept"


def late_observer(world: World, *, want_ms: int = HOUR_MS) -> None:
    """Member 0 comes late and wants the first hour."""
    world.want(0, BEGIN_MS, BEGIN_MS + want_ms)


# --- laws -------------------------------------------------------------------------------------------------------------


def what_happened_before_is_known_after() -> None:
    """A late observer comes to hold every page of everybody, and says that the hour is whole."""
    world = World(4)
    for at in (1, 2, 3):
        world.keep(at, minutes(world.members[at].identity, 60, places=20))
    late_observer(world)
    world.run(240)
    for at in (1, 2, 3):
        node = world.members[at].node
        assert world.members[0].shelf.of(node) == world.members[at].shelf.of(node), f"pages of {at} are missing"
        assert whats(world, 0, at) == ["whole"], "what is whole is not said"
    assert not world.members[0].alarms, "somebody honest was named"
    everything_held_is_signed(world, 0)


def loss_takes_nothing(seed: int = 1) -> None:
    """With a fifth of all messages lost and a fifth doubled everything arrives all the same."""
    world = World(3, seed, loss=0.2, doubles=0.2)
    for at in (1, 2):
        world.keep(at, minutes(world.members[at].identity, 60, places=40))
    late_observer(world)
    world.run(1_800)
    for at in (1, 2):
        assert whats(world, 0, at) == ["whole"], f"of {at} there is {whats(world, 0, at)}"
    assert not world.members[0].alarms, "somebody honest was named"


def a_gap_is_a_gap() -> None:
    """Of who is gone, who wrote nothing and who dropped it, it is said which it is, and nothing is whole."""
    world = World(4)
    first = minutes(world.members[1].identity, 20)
    later = minutes(world.members[1].identity, 20, BEGIN_MS + 40 * 60_000, 41)
    world.keep(1, [*first, *later])
    world.members[2].shelf.floors[world.members[2].node] = BEGIN_MS + 30 * 60_000
    world.keep(2, minutes(world.members[2].identity, 30, BEGIN_MS + 30 * 60_000))
    world.keep(3, minutes(world.members[3].identity, 60))
    world.away.add(3)
    world.introduce()
    late_observer(world)
    world.run(120)
    assert whats(world, 0, 1) == ["whole", "off", "whole"], f"a pause of 1 is {whats(world, 0, 1)}"
    assert whats(world, 0, 2) == ["expired", "whole"], f"what 2 dropped is {whats(world, 0, 2)}"
    assert whats(world, 0, 3) == ["unreachable"], f"who is gone is {whats(world, 0, 3)}"


def who_is_back_is_asked() -> None:
    """A member that was away when the observer came is asked when it is back."""
    world = World(2)
    world.keep(1, minutes(world.members[1].identity, 60))
    world.away.add(1)
    world.introduce()
    late_observer(world)
    world.run(60)
    assert whats(world, 0, 1) == ["unreachable"], "who is away is not said to be"
    world.away.clear()
    world.introduce()
    world.run(60)
    assert whats(world, 0, 1) == ["whole"], "who is back is not asked"


def another_observer_keeps_it() -> None:
    """What one observer has fetched another one gets from it when the author is gone, signed by the author."""
    world = World(3)
    world.keep(1, minutes(world.members[2].identity, 60))
    world.away.add(2)
    world.introduce()
    late_observer(world)
    world.run(120)
    assert whats(world, 0, 2) == ["whole"], f"there is {whats(world, 0, 2)}"
    everything_held_is_signed(world, 0)


def a_stranger_to_the_author_reads_its_certificate() -> None:
    """An observer that never met the author takes its pages with the certificate that comes with them."""
    world = World(3)
    world.keep(1, minutes(world.members[2].identity, 10))
    late = world.members[0]
    late.trust = late.identity.trust(CRYPTO)
    late.past._fetcher._trust = late.past._trust = late.trust
    late.trust.admit_certificate(world.members[1].identity.certificate)
    world.away.add(2)
    world.introduce()
    late_observer(world)
    world.run(120)
    assert len(late.shelf.of(world.members[2].node)) == 10, "pages of a stranger that are signed are not taken"
    everything_held_is_signed(world, 0)


LIES = ("garbage", "unsigned", "of another", "of times to come", "not asked for", "in no order")


def garbage(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def a_liar_is_named_and_left(lie: str) -> None:
    """Whoever answers with what does not hold is named, nothing of it is kept, and it is asked no more for a while."""
    world = World(3)
    liar, honest = world.members[1], world.members[2]
    world.keep(2, minutes(honest.identity, 60))
    own = minutes(liar.identity, 60)
    world.keep(1, own)
    soon_ms = world.now_ms + 120_000
    false = {
        "garbage": (garbage(own[-1]),),
        "unsigned": (flipped(own[-1]),),
        "of another": (minutes(honest.identity, 60)[-1],),
        "of times to come": (page(liar.identity, 901, (soon_ms - 240_000, soon_ms)),),
        "not asked for": (page(liar.identity, 3, (BEGIN_MS - 9 * 60_000, BEGIN_MS - 8 * 60_000)),),
        "in no order": (own[0], own[1]),
    }[lie]  # fmt: skip
    asked = []

    def says(message: messages.Message) -> messages.Message:
        if isinstance(message, messages.Answer):
            asked.append(world.now_ns)
            return messages.Answer(message.number, false, True, 0)
        return message

    liar.lie = says
    world.want(0, BEGIN_MS, BEGIN_MS + HOUR_MS * 3)
    world.run(300)
    late = world.members[0]
    assert [alarm.code for alarm in late.alarms] == ["past-liar"], f"{lie}: it is not named once"
    assert liar.node.hex() in late.alarms[0].text, "another one is named"
    assert len(asked) == 1, f"{lie}: a liar is asked {len(asked)} times"
    kept = [data for _, _, data in late.shelf.of(liar.node)]
    assert all(data in own for data in kept), "what a liar said is kept"
    assert whats(world, 0, 2) == ["whole"], "an honest member suffers for a liar"
    everything_held_is_signed(world, 0)
    assert "lied" in whats(world, 0, 1), f"{lie}: the gap is {whats(world, 0, 1)}"


def givers_that_agree_hold_up_nobody(answer_s: int | None, colluders: int, seed: int = 1) -> None:
    """Some answer nothing, or a page in so many seconds, and all their past is newer than what is missing of an honest
    one's; that comes all the same.
    """
    world, drawn = World(colluders + 2, seed), Random(seed)
    honest = 1 + drawn.randrange(colluders + 1)
    node = world.members[honest].node
    own = minutes(world.members[honest].identity, 360, places=20)
    world.keep(honest, own)

    def says(said: messages.Message, at: int) -> messages.Message | None:
        if not isinstance(said, messages.Answer):
            return said
        late = messages.encode_message(messages.Answer(said.number, said.pages[:1], bool(said.pages), 0))
        if answer_s is not None:
            world._at(world.now_ns + answer_s * S, lambda: world._arrive(at, world.members[0].node, late))
        return None

    for at in set(range(1, colluders + 2)) - {honest}:
        world.keep(at, minutes(world.members[at].identity, 400))
        world.members[at].lie = lambda said, at=at: says(said, at)  # type: ignore[misc]
    world.now_ns += 6 * HOUR_MS * MS
    world.keep(0, own[-10:])
    world.introduce()
    late_observer(world, want_ms=6 * HOUR_MS)
    world.run(240)
    assert whats(world, 0, honest, to_ms=BEGIN_MS + 6 * HOUR_MS) == ["whole"], "who is slow holds up another"
    late = world.members[0]
    assert len(late.shelf.of(node)) == 360
    assert len(late.past._fetcher._walks) <= WALKS_MAX * TIMEOUT_NS // SLOW_NS, "too many answers are waited for"
    assert not late.alarms, "somebody honest was named"


def silent_givers_hold_up_nobody() -> None:
    """Two dozen that never answer."""
    givers_that_agree_hold_up_nobody(None, 24)


def slow_givers_hold_up_nobody() -> None:
    """As many as are asked at once, twice, each just quick enough to be waited for."""
    givers_that_agree_hold_up_nobody(14, 8)


def a_liar_that_goes_and_comes_back_is_left() -> None:
    """Neither a lost link nor a word that fits no question takes away what a lie has cost."""
    for trick in ("link", "deny", "both"):
        world = World(3)
        liar, late = world.members[1], world.members[0]
        own = minutes(liar.identity, 60)
        world.keep(1, own)
        world.keep(2, minutes(world.members[2].identity, 60))
        asked: list[int] = []

        def says(said: messages.Message, asked: list[int] = asked, own: list[bytes] = own) -> messages.Message:
            if isinstance(said, messages.Answer):
                asked.append(said.number)
                return messages.Answer(said.number, (flipped(own[-1]),), True, 0)
            return said

        liar.lie = says
        late_observer(world)
        for _ in range(27):  # Nine minutes.
            world.run(20)
            if trick in ("link", "both"):
                world.away = {1}
                world.introduce()
                world.run(1)
                world.away = set()
                world.introduce()
            if trick in ("deny", "both"):
                for number in (0, 1, 2, asked[0]):
                    deny = messages.encode_message(messages.Deny(number, messages.BUSY, 0))
                    world.perform(0, late.past.on_message(liar.node, deny, world.now_ns))
        assert len(asked) == 1, f"{trick}: who lied is asked {len(asked)} times in nine minutes"
        assert "lied" in whats(world, 0, 1), f"{trick}: the gap is {whats(world, 0, 1)}"
        world.run(120)
        assert len(asked) == 2, f"{trick}: after ten minutes it is not asked again"


def who_is_shut_out_has_no_past() -> None:
    """Pages of a revoked author are not taken; those that are there are dropped, and the gap says why."""
    world = World(3)
    for at in (1, 2):
        world.keep(at, minutes(world.members[at].identity, 60))
    world.keep(0, minutes(world.members[1].identity, 5))
    late, out = world.members[0], world.members[1].node
    payload = Revocation("test", 1, (out,), "stolen")
    late.trust.add("revoke", sign_statement("revoke", payload, dev_role_seeds(SECRET, "revoke"), CRYPTO))
    world.perform(0, late.past.on_trust(world.now_ns))
    world.introduce()
    world.keep(2, minutes(world.members[1].identity, 60))
    late_observer(world)
    world.run(180)
    assert not late.shelf.of(out), "pages of who is shut out are kept"
    assert whats(world, 0, 1) == ["revoked"], f"the gap is {whats(world, 0, 1)}"
    assert whats(world, 0, 2) == ["whole"], "others suffer for it"
    world.keep(0, minutes(world.members[1].identity, 5))  # Out of its file, at the next start.
    world.run(1)
    assert not late.shelf.of(out), "pages of who was shut out meanwhile stay"
    assert not late.past.counts_now(out), "pages of who is shut out are shown"


def only_roles_that_may_are_given_to() -> None:
    """Where roles are named, who has none of them is refused, and its gap says so."""
    config = PastConfig(GivingConfig(roles=frozenset({"observer"})))
    world = World(3, config=config, roles=[["observer"], [], []])
    world.keep(1, minutes(world.members[1].identity, 60))
    world.want(0, BEGIN_MS, BEGIN_MS + HOUR_MS)
    world.want(2, BEGIN_MS, BEGIN_MS + HOUR_MS)
    world.run(120)
    assert whats(world, 0, 1) == ["whole"], "who may have it has not got it"
    assert whats(world, 2, 1) == ["refused"], f"who may not has {whats(world, 2, 1)}"
    assert not world.members[2].shelf.pages, "who may not has got pages"


def an_older_member_is_no_liar() -> None:
    """A member that does not know this sub-protocol is silent, is not named, and is asked ever more seldom."""
    world = World(2)
    world.members[1].knows_past = False
    late_observer(world)
    world.run(4 * 3_600)
    late = world.members[0]
    assert not late.alarms, "an older member is named"
    assert whats(world, 0, 1) == ["silent"], f"it is {whats(world, 0, 1)}"
    assert len(late.given) <= 16, f"it was asked {len(late.given)} times in four hours"


def what_is_given_is_bounded() -> None:
    """Over any ten seconds a giver gives no more than its rate, and no asker has more than half of it; the rest of what
    the node sends comes first.
    """
    rate, answer = 8_000, PAGE_MAX_BYTES + 1_024
    for askers in (1, 4):
        world = World(1 + askers, config=PastConfig(GivingConfig(bytes_s=rate)))
        giver = world.members[0]
        other = [0]
        giver.past.traffic.watch(lambda giver=giver, other=other: other[0] + sum(one[1] for one in giver.given))  # type: ignore[misc]
        hours = [minutes(giver.identity, 60, BEGIN_MS + at * HOUR_MS, 1 + 60 * at, 50) for at in range(12)]
        world.keep(0, [one for hour in hours for one in hour])
        world.now_ns += 12 * HOUR_MS * MS
        for at in range(1, 1 + askers):
            world.want(at, BEGIN_MS, BEGIN_MS + 12 * HOUR_MS)
        world.run(120)
        for begin, _, _ in giver.given:
            within = sum(size for at, size, _ in giver.given if begin <= at < begin + 10 * S)
            assert within <= 10 * rate + answer, f"a giver gives {within} bytes in ten seconds"
        calm = sum(size for _, size, _ in giver.given)
        if askers == 1:
            assert calm <= 120 * rate // 2 + 3 * rate + answer, f"one asker has {calm} bytes: more than its share"
        assert calm > 40 * rate, f"a giver with nothing else to say gave {calm} bytes in 120 s"
    count = len(giver.given)
    for _ in range(60):
        other[0] += 4 * rate
        world.run(1)
    stormy = sum(size for _, size, _ in giver.given[count:])
    assert stormy / 60 < 0.85 * calm / 120, f"in a storm it gave {stormy} bytes: its own work does not come first"
    assert stormy > 0, "in a storm nothing is given at all"


def a_disk_that_does_not_answer_is_no_end() -> None:
    """What the driver never answers is given up, and the next question is looked up."""
    world = World(4)
    world.keep(0, minutes(world.members[0].identity, 60))
    left: dict[type, int] = {requests.FindRows: 2, requests.FindPages: 2}

    def is_stuck(request: object) -> bool:
        kind = type(request)
        left[kind] = left.get(kind, 0) - 1
        return left[kind] >= 0

    world.members[0].is_stuck = is_stuck
    for at in (1, 2, 3):
        world.want(at, BEGIN_MS, BEGIN_MS + HOUR_MS)
    world.run(600)
    assert [whats(world, at, 0) for at in (1, 2, 3)] == [["whole"]] * 3, "a disk that was slow once is asked no more"


def what_there_is_is_told_out_of_the_budget() -> None:
    """Long lists, asked for by many as they may, cost the giver no more than its rate; pages come all the same."""
    rate, askers = 8_000, 30
    world = World(2 + askers, config=PastConfig(GivingConfig(bytes_s=rate)))
    giver = world.members[0]
    world.keep(0, minutes(giver.identity, 60))
    rows = list(giver.shelf.rows(giver.node))
    for at in range(150):
        other = identity(f"other{at}")
        giver.trust.admit_certificate(other.certificate)
        rows.append(messages.Row(other.node, 0, BEGIN_MS, BEGIN_MS + 60_000))
    giver.shelf.rows = lambda own: tuple(rows)  # type: ignore[method-assign]
    world.want(1, BEGIN_MS, BEGIN_MS + HOUR_MS)
    for number in range(1, 41):
        for asker in world.members[2:]:
            ask = messages.encode_message(messages.List(number))
            world.perform(0, giver.past.on_message(asker.node, ask, world.now_ns))
        world.run(5)
    listing = len(messages.encode_message(messages.Listing(1, tuple(rows))))
    pages = [(at, size) for at, size, _ in giver.given if size > 100]  # Others say that there is nothing now.
    for begin, _ in pages:
        within = sum(size for at, size in pages if begin <= at < begin + 10 * S)
        assert within <= 10 * rate + listing + PAGE_MAX_BYTES, f"a giver tells {within} bytes in ten seconds"
    assert whats(world, 1, 0) == ["whole"], "who asks what there is keeps pages from others"


def askers_that_agree_leave_another_its_turn() -> None:
    """More than may wait ask without end; who comes late is served among them."""
    world, askers = World(2 + 24), range(2, 26)
    giver = world.members[0]
    world.keep(0, minutes(giver.identity, 60, places=60))
    world.run(1)
    for step in range(480):
        if step == 40:
            world.want(1, BEGIN_MS + 50 * 60_000, BEGIN_MS + HOUR_MS)
        for at in askers:
            ask = messages.Ask(step + 1, giver.node, BEGIN_MS, BEGIN_MS + HOUR_MS, BEGIN_MS + 2 * HOUR_MS, 0)
            sender = world.members[at].node
            world.perform(0, giver.past.on_message(sender, messages.encode_message(ask), world.now_ns))
        world.run(0.25)
    there = whats(world, 1, 0, BEGIN_MS + 50 * 60_000)
    assert there == ["whole"], f"of who is asked by many another has {there}"


def names_that_are_made_up_leave_room_for_members() -> None:
    """One member lists authors that are none, others each time; the past of who comes later is fetched all the same."""
    world = World(3)
    honest, liar = world.members[1], world.members[2]
    observer, drawn = world.members[0], Random(6)

    def listing(said: messages.Message) -> messages.Message:
        if not isinstance(said, messages.Listing):
            return said
        rows = (messages.Row(drawn.randbytes(16), 0, BEGIN_MS, BEGIN_MS + HOUR_MS) for _ in range(messages.ROWS_MAX))
        return messages.Listing(said.number, tuple(rows))

    liar.lie = listing
    world.away = {1}
    fetcher = observer.past._fetcher
    fetcher._authors.clear()
    peers = [Peer(liar.node, "liar", bytes(32), True)]
    world.perform(0, observer.past.on_peers(peers, world.now_ns))
    late_observer(world)
    for _ in range(6):
        world.run(70)
        world.perform(0, observer.past.on_peers([], world.now_ns))
        world.perform(0, observer.past.on_peers(peers, world.now_ns))
    assert len(fetcher._authors) <= AUTHORS_MAX
    world.away.clear()
    liar.lie = lambda said: None
    world.keep(1, minutes(honest.identity, 60))
    world.introduce()
    world.run(300)
    assert whats(world, 0, 1) == ["whole"], "there was no room for a member"


def who_asks_without_end_is_not_heard() -> None:
    """A flood of questions costs the giver a bounded number of answers, and the flooder is refused."""
    world = World(3)
    world.keep(0, minutes(world.members[0].identity, 60))
    flooder = world.members[1].node
    giver = world.members[0]
    for number in range(1, 2_001):
        ask = messages.encode_message(messages.Ask(number, giver.node, BEGIN_MS, BEGIN_MS + HOUR_MS, BEGIN_MS, 0))
        world.perform(0, giver.past.on_message(flooder, ask, world.now_ns))
    world.want(2, BEGIN_MS, BEGIN_MS + HOUR_MS)
    world.run(60)
    assert sum(1 for _, _, to in giver.given if to == flooder) < 70, "a flood is answered"
    assert len(giver.rejected) > 1_900, "a flood is not refused"
    assert whats(world, 2, 0) == ["whole"], "others are not served beside a flood"


def no_bytes_are_a_page_but_a_page(data: bytes) -> None:
    """Whatever bytes there are: they are refused, or they are written exactly as what they say is written."""
    try:
        one = read_page(data)
    except WireError:
        return
    assert 0 <= one.to_ms - one.from_ms <= PAGE_MAX_MS
    assert all(row.at <= one.to_ms - one.from_ms for row in one.events)
    assert all(row.at <= one.to_ms - one.from_ms for row in one.places)
    assert msgspec.msgpack.encode(one) == data[:-SIGNATURE_BYTES], "one page can be written in two ways"
