"""Whom a node asks for the list of a file's chunks, where only one other is in reach."""

import random

from swarmd_protocols.effects import Order
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.fetching import Fetcher
from swarmd_protocols.releases.messages import (
    AskList,
    BlobMessage,
    ChunkList,
    TellChunks,
    decode_message,
)
from swarmd_protocols.releases.requests import BlobOpened
from swarmd_protocols.releases.statements import Blob
from swarmd_protocols.releases.stores import MemoryStore, carry_out, describe
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.releases.waiting import Waiting
from swarmd_protocols.subprotocol import Send, SubEffect

MS, START_NS = 1_000_000, 100_000_000_000
PEER, OTHER = NodeId(b"p" * 16), NodeId(b"q" * 16)


def asks(effects: list[SubEffect]) -> int:
    return sum(1 for one in effects if isinstance(one, Send) and isinstance(decode_message(one.payload), AskList))


def waiting_fetcher(*peers: NodeId) -> tuple[Fetcher, Blob, bytes]:
    """One that wants a file of which nothing lies here; its tag."""
    blob = describe(b"model" * 100_000)[0]
    fetcher = Fetcher(random.Random(1), SwarmingConfig())
    fetcher.on_peers(list(peers), 0)
    fetcher.want(blob)
    fetcher.on_opened(BlobOpened(blob, None, 0, False), 0)
    return fetcher, blob, blob.sha256[:8]


def told(fetcher: Fetcher, message: BlobMessage, at_ms: int, sender: NodeId = PEER) -> int:
    """How often somebody is asked for the list because of a message."""
    return asks(fetcher.on_message(sender, message, START_NS + at_ms * MS))


def test_the_only_peer_is_asked_again_once_it_has_the_list() -> None:
    """On a line, the one next to the end of it answers "not here either" first, and has the list a little later."""
    fetcher, _blob, tag = waiting_fetcher(PEER)
    fetcher.on_message(PEER, TellChunks(tag, b""), START_NS)
    assert asks(fetcher.on_tick(START_NS + 100 * MS)) == 1
    assert told(fetcher, ChunkList(tag, b""), 110) == 0
    assert told(fetcher, TellChunks(tag, b"\x01"), 2_000) == 1


def test_a_peer_that_shows_chunks_and_has_no_list_is_asked_once_for_each_time_that_it_shows_them() -> None:
    fetcher, _blob, tag = waiting_fetcher(PEER)
    assert told(fetcher, TellChunks(tag, b"\x01"), 10) == 1
    assert [told(fetcher, ChunkList(tag, b""), 20 + at) for at in range(3)] == [0] * 3
    assert [asks(fetcher.on_tick(START_NS + (100 + at) * MS)) for at in range(50)] == [0] * 50
    assert told(fetcher, TellChunks(tag, b"\x01"), 200) == 1


def test_who_has_none_gives_way_to_who_shows_chunks() -> None:
    waiting = Waiting(describe(b"x" * 10)[0], is_opening=False)
    waiting.hear(PEER, b"\x01")
    waiting.hear(OTHER, b"\x01")
    asked = waiting.ask(random.Random(1), START_NS)
    assert asks(asked) == 1
    first = waiting.asked
    assert first is not None
    waiting.has_none(first)
    assert asks(waiting.ask(random.Random(1), START_NS + MS)) == 1
    assert waiting.asked not in (None, first)


def test_who_did_not_know_the_file_when_it_was_shown_is_shown_again_at_its_first_word() -> None:
    """The publisher greets before the news of the release has come; nobody waits for its next repetition."""
    store = MemoryStore()
    fetcher = Fetcher(random.Random(1), SwarmingConfig())
    fetcher.on_peers([PEER], 0)
    for order in fetcher.provide(store.put_blob(b"model" * 100_000), super_seed=True):
        assert isinstance(order, Order)
        for answer in carry_out(store, order.request):  # type: ignore[arg-type]
            if isinstance(answer, BlobOpened):
                fetcher.on_opened(answer, 0)  # The greeting, which says nothing to the peer.
    tag = store.put_blob(b"model" * 100_000).sha256[:8]
    shown = [_shown(fetcher.on_message(PEER, TellChunks(tag, b""), at * MS)) for at in (50, 60, 70)]
    assert [one.bit_count() > 0 for one in shown] == [True, False, False]


def _shown(effects: list[SubEffect]) -> int:
    words = [decode_message(one.payload) for one in effects if isinstance(one, Send)]
    return max((int.from_bytes(one.mask, "little") for one in words if isinstance(one, TellChunks)), default=0)
