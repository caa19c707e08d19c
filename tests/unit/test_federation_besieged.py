"""Pipes, clocks, copies of files, stolen keys: laws of `tests/support/federation_besieged.py`, a mutant for each."""

import os
import random
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarmd.errors import ConfigError
from swarmd.federation import descent, lives, outbox, region, sending, steady
from swarmd.federation.outbox import Waiting
from swarmd.federation.publisher import Publisher
from swarmd.federation.region import Region
from swarmd.federation.sending import Sending
from swarmd.federation.settings import alone_with
from swarmd.federation.unproven import Unproven
from swarmd_protocols.federation.allowance import Allowance, Reserves
from swarmd_protocols.federation.gate import EVERYBODY, Gate
from swarmd_protocols.federation.objects import MEMBERS_MAX, REVIEWS_MAX
from swarmd_protocols.federation.wire import FRAME_MAX_BYTES, LIFE_HEARD, RowKind, TrustRow, encode_row
from swarmd_protocols.ids import NodeId
from swarmd_protocols.state import evidence
from swarmd_protocols.state.crdt.batch import Stream
from swarmd_protocols.state.crdt.reviews import STATEMENT_MAX_BYTES
from swarmd_protocols.state.observations import StatusReport
from tests.property.test_federation_objects import derived
from tests.support import federation_besieged as besieged
from tests.support.federation_hostile import revocation_of
from tests.support.federation_siege import who_comes_back_hears_what_others_said
from tests.support.federation_world import make_world
from tests.support.state_mesh import Mesh, detection
from tests.unit.test_federation_publisher import ALL, Site


async def test_a_statement_that_overtakes_its_root_arrives(tmp_path: Path) -> None:
    await besieged.a_statement_that_overtakes_its_root_arrives(tmp_path)


async def test_a_gateway_that_lets_refused_statements_be_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Publisher, "on_refused", lambda self, rows: None)
    with pytest.raises(AssertionError, match="never arrives"):
        await besieged.a_statement_that_overtakes_its_root_arrives(tmp_path)


def nobody_hears_of_lives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sending, "_hear_past", lambda *_: None)


def no_life_is_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Region, "_take_have", lambda self, line, heard: None)


def any_life_counts(patch: pytest.MonkeyPatch) -> None:
    def take(self: Region, line: Any, heard: Any) -> None:
        line.life = heard.up.have.seq + 1

    patch.setattr(Region, "_take_have", take)


def all_are_told_of_one(patch: pytest.MonkeyPatch) -> None:
    def take(self: Region, line: Any, heard: Any) -> None:
        if heard.up.have.log == LIFE_HEARD:
            self._life = heard.up.have.seq

    patch.setattr(Region, "_take_have", take)


def no_reserve(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reserves, "of", lambda self, gateway, counts: None)


def a_reserve_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reserves, "of", lambda self, gateway, counts: Allowance(1, 1))


def a_queue_that_is_full(patch: pytest.MonkeyPatch) -> None:
    hear = Region.on_frame

    def on_frame(self: Region, path: int, place: Any, frame: bytes) -> None:
        if len(self._gathered) < region.GATHERED_MAX:
            hear(self, path, place, frame)

    patch.setattr(Region, "on_frame", on_frame)


def one_queue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(region, "GATHERED_OF_ONE", region.GATHERED_MAX)
    a_queue_that_is_full(patch)


def any_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gate, "_check_time", lambda self, stamp_ms: None)


def who_is_asked_for_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unproven, "asked", lambda *_: [])


def news_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Allowance, "spend", lambda self, count: None)


def nothing_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(region, "DOWN_BURST_BYTES", 0)


def nothing_stands(patch: pytest.MonkeyPatch) -> None:
    whole = Region._answer
    patch.setattr(
        Region, "_answer", lambda self, gate, gateway, line, down, stands=(): whole(self, gate, gateway, line, down)
    )


def any_life_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sending, "LIFE_MAX", 1 << 62)


def nothing_was_missed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(region, "missed", lambda *_: [])


LAWS = [
    (who_comes_back_hears_what_others_said, nothing_was_missed),
    (besieged.a_thief_of_a_key_spoils_no_outbox, any_life_is_taken),
    (besieged.who_says_less_is_told_with_each_acknowledgement, nothing_stands),
    (besieged.who_lies_about_its_place_in_the_log_is_told_little, news_is_free),
    (besieged.a_long_log_comes_down_at_once, nothing_at_once),
    (besieged.who_has_no_certificate_keeps_nothing_back, who_is_asked_for_waits),
    (besieged.a_stolen_gateway_keeps_no_revocation_away, no_reserve),
    (besieged.a_stolen_gateway_keeps_no_revocation_away, a_reserve_without_end),
    (besieged.small_frames_take_no_others_place, one_queue),
    (besieged.four_swarms_take_no_fifth_ones_place, a_queue_that_is_full),
    (besieged.what_will_be_seen_is_refused, any_time),
    (besieged.a_region_whose_clock_was_ahead_is_heard, nobody_hears_of_lives),
    (besieged.a_region_is_heard_after_a_second_one_has_gone, no_life_is_told),
    (besieged.who_plays_answers_back_moves_nothing, any_life_counts),
    (besieged.a_liar_about_lives_is_its_own_loss, all_are_told_of_one),
]


@pytest.mark.parametrize(("law", "mutant"), LAWS)
def test_a_law_holds_and_sees_its_mutant(
    law: Callable[[Path], None], mutant: Callable[[pytest.MonkeyPatch], None], tmp_path: Path
) -> None:
    (tmp_path / "whole").mkdir()
    law(tmp_path / "whole")
    (tmp_path / "mutant").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises(AssertionError):
            law(tmp_path / "mutant")


def test_one_process_runs_a_region(tmp_path: Path) -> None:
    with alone_with(tmp_path), pytest.raises(ConfigError, match="runs already"), alone_with(tmp_path):
        pass
    with alone_with(tmp_path):
        pass
    with pytest.raises(ConfigError, match="cannot be opened"), alone_with(tmp_path / "nowhere"):
        pass


def test_an_outbox_put_back_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole").mkdir()
    besieged.an_outbox_put_back_is_heard(tmp_path / "whole", monkeypatch)
    monkeypatch.setattr(lives, "APART", 1)
    (tmp_path / "mutant").mkdir()
    with pytest.raises(AssertionError):
        besieged.an_outbox_put_back_is_heard(tmp_path / "mutant", monkeypatch)


def test_a_proof_is_cut_to_what_fits_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its row would wait for ever, and the site's own word behind it."""
    reviews, members = REVIEWS_MAX * STATEMENT_MAX_BYTES, 2 * MEMBERS_MAX * 100
    assert evidence.BYTES_MAX + reviews + members < FRAME_MAX_BYTES - 1_000
    mesh = Mesh(3, seed=3)
    for index in range(3):
        mesh.see(index, detection(mesh.now_ns, 1, 900 + index, score=800))
        mesh.run(2)
    replica = mesh.members[0].replica
    assert replica is not None
    [whole] = [one for part in replica.views.evidence_parts() for one in part]
    assert len(whole.batches) == 3
    monkeypatch.setattr(evidence, "BYTES_MAX", sum(len(one.raw) for one in whole.batches) - 1)
    [cut] = [one for part in replica.views.evidence_parts() for one in part]
    assert cut.batches == whole.batches[:2]
    assert len(derived(mesh, cut).observers) == 2


def test_who_was_revoked_holds_no_reserve_against_a_seventeenth_gateway(tmp_path: Path) -> None:
    world = make_world(tmp_path, random.Random(1), 1, 2)
    [swarm] = world.swarms
    gone, other = swarm.gateways
    for gateway, thing in ((gone, 1), (other, 2)):
        gateway.say(thing, 500)
        world.settle()
    gate = world.region.gates[swarm.pin.key]
    reserves, seventeenth = Reserves(1 << 20, 1 << 20), NodeId(b"new" + bytes(13))
    for node in (gone.node, other.node, *(NodeId(bytes([number]) * 16) for number in range(14))):
        assert reserves.of(node) is not None
    assert reserves.of(seventeenth) is None, "a seventeenth has a part"
    spent = reserves.of(other.node)
    assert reserves.of(seventeenth, lambda node: node != gone.node) is not None
    assert reserves.of(other.node) is spent, "who is there still begins anew"
    assert reserves.of(gone.node, lambda node: True) is None
    row = Waiting(RowKind.TRUST, b"revoke", encode_row(TrustRow("revoke", revocation_of(swarm, gone))))
    other.outbox.put([row], world.now_ms)
    assert gate._is_gateway_still(gone.node)
    world.settle()
    assert (gate._is_gateway_still(gone.node), gate._is_gateway_still(other.node)) == (False, True)
    world.close()


async def test_what_was_taken_back_is_said_again_where_the_swarm_shows_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.publishers[0].claim(ALL, 1)
    site.see(1)
    said = await site.said(0)
    author, other = site.mesh.members[0].node, site.mesh.members[1].node
    assert site.outboxes[0].take_back(other) == []
    taken_back = site.outboxes[0].take_back(author)
    assert {row.key for row in taken_back if row.kind == RowKind.OBJECT} == set(said) != set()
    assert await site.said(0) == {}
    site.publishers[0].on_taken_back(taken_back)
    assert set(await site.said(0)) == set(said)
    for one in site.outboxes:
        one.close()


def test_who_is_asked_for_now_and_then_is_waited_for(tmp_path: Path) -> None:
    outbox_, here = outbox.Outbox(tmp_path / outbox.FILE_NAME, 1 << 20, 1e9), {b"h" * 16}
    unproven = Unproven(outbox_, here.__contains__)
    lost = NodeId(b"l" * 16)
    for now_s in (0.0, 601.0, 1_300.0):
        unproven.asked([lost, EVERYBODY, NodeId(b"h" * 16)], now_s)
        assert unproven._asked == {lost: (now_s, now_s)}, "who was not asked for in ten minutes is as asked for first"
    here.add(lost)
    unproven.asked([lost], 1_301.0)
    assert unproven._asked == {}
    for number in range(300):
        unproven.asked([NodeId(number.to_bytes(16, "big"))][number == 0 :], 1_302.0)
    assert len(unproven._asked) == 256
    outbox_.close()


async def test_lives_that_are_over_take_no_room_in_a_gateway(tmp_path: Path) -> None:
    site = Site(tmp_path)
    publisher = site.publishers[0]
    publisher.claim(ALL, 1)
    for _ in range(2):
        site.mesh.command(0, StatusReport(b'{"eye": "running"}'))
        site.mesh.run(5)
        publisher._health_due_s = publisher._compare_s = 0.0
        await publisher.scan()
    said = dict(publisher._records)
    assert said
    for life in range(1_000):
        publisher._records[bytes((Stream.STATUS,)) + bytes(16) + life.to_bytes(8, "big")] = b""
    publisher._compare_s = 0.0
    await publisher.scan()
    assert publisher._records == said
    for one in site.outboxes:
        one.close()


class Drip(BaseHTTPRequestHandler):
    """A server that says a byte now and then, without end; of `/whole` all at once."""

    protocol_version = "HTTP/1.1"
    said = 0
    """Bytes that dripped, of all requests."""

    def do_GET(self) -> None:
        what = self.path.rpartition("/")[2]
        try:
            if what == "continues":
                for _ in range(100_000):
                    self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            elif what == "head":
                self._drip(b"HTTP/1.1 200 OK\r\nX: ")
            elif what == "chunk":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;")
                self._drip(b"")
            else:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                if what == "whole":
                    self.wfile.write(bytes(100_000))
                else:
                    self._drip(b"")
        except OSError:
            pass
        self.close_connection = True

    def _drip(self, data: bytes) -> None:
        for one in chain(data, repeat(0)):  # Whoever is not given up keeps its reader for ever.
            Drip.said += 1
            self.wfile.write(bytes((one,)))
            time.sleep(0.005)

    def log_message(self, *_: object) -> None:
        pass


def test_a_source_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten seconds a byte, by the clock of who reads: the patience with a server of this machine is the real one's.
    monkeypatch.setattr(Drip, "said", 0)
    clock = SimpleNamespace(monotonic=lambda: 10.0 * Drip.said)
    monkeypatch.setattr(steady, "time", clock)
    monkeypatch.setattr(descent, "time", clock)
    with ThreadingHTTPServer(("127.0.0.1", 0), Drip) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            place = f"http://127.0.0.1:{server.server_port}"
            assert descent._read(place, "whole", 200_000) == bytes(100_000)
            with pytest.raises(OSError, match="larger than the 99999 bytes"):
                descent._read(place, "whole", 99_999)
            for what in ("drip", "head", "chunk"):
                with pytest.raises(OSError, match="less than 512 bytes a second"):
                    descent._read(place, what, 200_000)
            with pytest.raises(OSError, match="its head is larger than 65536 bytes"):
                descent._read(place, "continues", 200_000)
        finally:
            server.shutdown()
            thread.join()


def test_a_pipe_in_a_publication_keeps_no_bundle_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "statement")
    with pytest.raises(OSError, match="no regular file"):
        descent._read(str(tmp_path), "statement", 10)
