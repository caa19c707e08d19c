"""What a gateway says: its shares, on change, once; and what a second gateway adds when it takes shares over."""

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarmd.errors import DaemonError
from swarmd.federation import outbox as outbox_module
from swarmd.federation import publisher as module
from swarmd.federation.outbox import FILE_NAME, Done, Outbox
from swarmd.federation.publisher import Publisher
from swarmd_protocols.effects import StateChanged
from swarmd_protocols.federation.gate import Gate, Heard, Pin
from swarmd_protocols.federation.objects import Derived, read_object
from swarmd_protocols.federation.shares import SHARES, owned, share_of
from swarmd_protocols.federation.wire import Known, RowKind
from swarmd_protocols.state.observations import ObjectChanged, StatusReport
from tests.support.federation_daemon import MeshDaemon
from tests.support.state_mesh import CRYPTO, Mesh, detection

ALL = frozenset(range(SHARES))


class Site:
    """A mesh with two gateways, whose outboxes are read by hand."""

    def __init__(self, folder: Path) -> None:
        self.mesh = Mesh(3, seed=3)
        self.daemons = [MeshDaemon(self.mesh, index) for index in (0, 1)]
        self.outboxes = [Outbox(folder / str(at) / FILE_NAME, 1 << 20, 1e9) for at in range(2)]
        self.publishers = [
            Publisher(daemon, outbox, CRYPTO, refresh_s=1e9, health_s=1e9)
            for daemon, outbox in zip(self.daemons, self.outboxes, strict=True)
        ]

    def see(self, thing: int, score: int = 800, observers: tuple[int, ...] = (0, 2)) -> None:
        """Members see one thing, and everybody hears of it."""
        for index in observers:
            self.mesh.see(index, detection(self.mesh.now_ns, thing, thing * 900, score=score))
        self.mesh.run(3)
        for daemon, publisher in zip(self.daemons, self.publishers, strict=True):
            for detail in daemon.member.details:
                if isinstance(detail, ObjectChanged):
                    publisher.on_event(StateChanged("state", detail))
            daemon.member.details.clear()

    async def said(self, at: int) -> dict[bytes, int]:
        """Objects that a gateway puts into its outbox in one look, with their stamps."""
        await self.publishers[at].scan()
        outbox = self.outboxes[at]
        rows = [row for row in outbox.read([seq for seq, _ in outbox.waiting(1_000)]) if row.kind == RowKind.OBJECT]
        return {(one := read_object(row.body)).object_id: one.stamp for row in rows}

    def acknowledge(self, at: int) -> list[Done]:
        """The region takes everything, and tells the other gateway."""
        done = self.outboxes[at].acknowledge([(0, 1 << 40)])
        self.publishers[at].on_done(done)
        known = [
            Known(row.key, int.from_bytes(row.mark[:8], "big"), row.mark[8:])
            for row in done
            if row.kind == RowKind.OBJECT
        ]
        self.publishers[1 - at].on_known(known)
        return done


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    one = Site(tmp_path)
    yield one
    for outbox in one.outboxes:
        outbox.close()


async def test_each_object_is_said_by_the_one_that_has_its_share(site: Site) -> None:
    nodes = [daemon.member.node for daemon in site.daemons]
    for at, node in enumerate(nodes):
        site.publishers[at].claim(owned(node, nodes), 2)
    for thing in range(8):
        site.see(thing)
    first, second = await site.said(0), await site.said(1)
    assert len(first) + len(second) == 8
    assert not first.keys() & second.keys()
    for at, said in enumerate((first, second)):
        assert all(share_of(key) in site.publishers[at].shares for key in said)


async def test_what_one_member_alone_has_seen_is_not_said(site: Site) -> None:
    site.publishers[0].claim(ALL, 1)
    site.see(1, observers=(0,))
    assert await site.said(0) == {}
    site.see(1, observers=(2,))
    assert len(await site.said(0)) == 1


async def test_what_the_region_has_is_not_said_again(site: Site) -> None:
    site.publishers[0].claim(ALL, 1)
    site.see(1)
    assert len(await site.said(0)) == 1
    assert await site.said(0) != {}, "it waits in the outbox"
    site.acknowledge(0)
    site.publishers[0]._compare_s = 0.0
    assert await site.said(0) == {}


async def test_who_takes_shares_over_says_only_what_the_region_lacks(site: Site) -> None:
    site.publishers[0].claim(ALL, 1)
    site.see(1)
    site.see(2)
    assert len(await site.said(0)) == 2
    site.acknowledge(0)
    site.see(3)
    # The first dies before it has said the third; the second has heard of the two from the region.
    site.publishers[1].claim(ALL, 1)
    said = await site.said(1)
    [third] = [key for key in said if key not in site.publishers[1].known]
    assert said == {third: said[third]}


async def test_a_word_is_above_what_the_region_has_whatever_the_clock_says(site: Site) -> None:
    site.publishers[0].claim(ALL, 1)
    site.see(1)
    [(key, stamp)] = (await site.said(0)).items()
    site.acknowledge(0)
    site.publishers[0].on_known([Known(key, stamp + 10**12, b"another!")])
    site.publishers[0]._compare_s = 0.0
    assert (await site.said(0))[key] == stamp + 10**12 + 1


async def test_a_part_said_later_than_the_whole_is_hidden_again(site: Site) -> None:
    """A gateway that did not know of a merge has said a part alone; who knows says the whole once more."""
    site.publishers[0].claim(ALL, 1)
    site.see(1)
    [(key, stamp)] = (await site.said(0)).items()
    site.acknowledge(0)
    publisher = site.publishers[0]
    real = publisher._derived
    part = bytes(7) + b"p"
    publisher._derived = lambda one: ((made := real(one))[0]._replace(merged=(part,)), made[1])  # type: ignore[method-assign]
    publisher._said.clear()
    publisher._compare_s = 0.0
    assert len(await site.said(0)) == 1
    site.acknowledge(0)
    publisher.on_known([Known(part, stamp + 10**9, b"alone...")])
    publisher._compare_s = 0.0
    assert (await site.said(0))[key] == stamp + 10**9 + 1


async def test_status_is_said_for_own_shares_and_again_only_when_it_changed(site: Site) -> None:
    site.publishers[0].claim(ALL, 1)
    for index in range(3):
        site.mesh.command(index, StatusReport(b'{"eye": "running"}'))
    site.mesh.run(5)
    await site.said(0)
    kinds = [row.kind for row in site.acknowledge(0)]
    assert kinds.count(RowKind.RECORD) >= 3
    site.publishers[0]._health_due_s = 0.0
    await site.said(0)
    assert RowKind.RECORD not in [row.kind for row in site.acknowledge(0)]


async def test_everything_that_is_said_passes_the_gate_of_the_swarms_root(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SITE_S", 0.0)
    site.publishers[0].claim(ALL, 1)
    for thing in range(4):
        site.see(thing, 500 + random.Random(thing).randrange(400))
    await site.said(0)
    outbox = site.outboxes[0]
    pin = Pin("mesh", "mesh", site.daemons[0].first_root)
    gate = Gate(pin, bytes(32), CRYPTO)
    for _, certificate in site.mesh.statements:
        gate.trust.admit_certificate(certificate)
    heard = Heard(site.daemons[0].member.node, b"", 1, None)  # type: ignore[arg-type]
    taken = [
        gate._row(row, row.proofs, heard)  # type: ignore[arg-type]
        for row in outbox.read([seq for seq, _ in outbox.waiting(1_000)])
    ]
    assert sum(isinstance(one, Derived) for one in taken) == 4
    assert heard.wanted == []


async def test_what_a_full_disk_did_not_take_is_said_when_it_takes_it(site: Site) -> None:
    site.publishers[0].claim(ALL, 1)
    await site.said(0)
    disk = site.outboxes[0]._db
    [pages] = disk.execute("PRAGMA page_count").fetchone()
    disk.execute(f"PRAGMA max_page_count={pages}")
    for thing in range(30):
        site.see(thing)
    with pytest.raises(DaemonError, match="make room"):
        await site.publishers[0].scan()
    disk.execute("PRAGMA max_page_count=100000")
    assert len(await site.said(0)) == 30
    trust = [row for row in site.outboxes[0].read(range(1_000)) if row.kind == RowKind.TRUST]
    assert len(trust) == 3, "certificates that were not written down are said again"


def test_what_the_region_is_known_to_have_has_a_bound_in_memory_too(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KNOWN_MAX", 5)
    monkeypatch.setattr(outbox_module, "KNOWN_MAX", 5)
    for number in range(20):
        site.publishers[0].on_known([Known(number.to_bytes(8, "big"), 1, bytes(8))])
    site.publishers[0].on_known([Known((16).to_bytes(8, "big"), 2, bytes(8))])
    assert [key[7] for key in site.publishers[0].known] == [15, 16, 17, 18, 19]
    assert site.outboxes[0].known() == site.publishers[0].known


async def test_what_is_no_more_confirmed_is_not_looked_at_for_ever(site: Site) -> None:
    site.publishers[0].claim(ALL, 1)
    site.see(1)
    await site.said(0)
    site.acknowledge(0)
    site.see(1, score=900)
    await site.said(0)
    publisher = site.publishers[0]
    [name] = publisher._later
    publisher._later[name] = 0.0
    real = site.daemons[0].evidence

    def shaken(wanted):  # type: ignore[no-untyped-def]
        for part in real(wanted):
            yield [
                SimpleNamespace(view=SimpleNamespace(object_id=one.view.object_id, tier="candidate")) for one in part
            ]

    site.daemons[0].evidence = shaken  # type: ignore[method-assign]
    publisher.known.clear()  # The region has let go of it: it shows nothing that it would have to be told of.
    await publisher.scan()
    assert publisher._later == {}
