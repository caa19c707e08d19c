"""A release from its publication at one node to the whole fleet, and back: the real sub-protocol on a small bus."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from swarmd_protocols.effects import StateChanged
from swarmd_protocols.releases import fetching, requests, rollout
from swarmd_protocols.releases.local import LocalModel
from swarmd_protocols.releases.reports import Verdict
from swarmd_protocols.releases.statements import Floor, Force, Halt, Heartbeat, Revoke
from swarmd_protocols.subprotocol import Send
from tests.support.release_world import MODEL, Keys, World, make_release

pytestmark = pytest.mark.slow

V1, V2, V3 = b"one" * 20_000, b"two" * 20_000, b"bad" * 20_000


def release_in(world: World, at: int, data: bytes, version: int, previous: bytes = b"", **changes: object) -> bytes:
    envelope = world.keys.sign("release", make_release(data, version, previous, **changes).payload(), "release")
    world.publish(at, [envelope], data)
    return envelope.digest


def test_a_release_published_at_one_node_reaches_all() -> None:
    world = World(6)
    release_in(world, 3, V1, 1)
    world.run(90, lambda: world.versions() == [1] * 6)
    assert world.versions() == [1] * 6
    world.run(10)
    assert len({node.summary() for node in world.nodes}) == 1


def test_canaries_come_first_and_the_others_wait_for_their_verdicts() -> None:
    world = World(10)
    world.run(10)
    release_in(world, 0, V1, 1)
    world.run(4)
    assert sum(bool(tried) for tried in world.tried) == 2, "two canaries at 5 % of ten"
    world.run(60)
    assert world.versions() == [1] * 10


def test_a_bad_release_is_halted_at_its_canaries_and_the_fleet_stays() -> None:
    world = World(8)
    first = release_in(world, 0, V1, 1)
    world.run(90, lambda: world.versions() == [1] * 8)
    bad = world.keys.sign("release", make_release(V3, 2, first).payload(), "release")
    world.healthy = lambda node, release: release != bad.digest
    world.publish(0, [bad], V3)
    world.run(60)
    assert world.versions() == [1] * 8
    assert 1 <= sum(bad.digest in tried for tried in world.tried) <= 2
    what = {detail.what for _, detail in world.details if isinstance(detail, requests.RolloutChanged)}
    assert "halted" in what


def test_a_revocation_takes_the_fleet_back_without_relabelling() -> None:
    world = World(5)
    first = release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions() == [1] * 5)
    second = release_in(world, 1, V2, 2, first)
    world.run(60, lambda: world.versions() == [2] * 5)
    assert world.versions() == [2] * 5
    revoke = world.keys.sign("model-revoke", Revoke(MODEL, 1, second, "wrong labels").payload(), "revoke")
    world.publish(4, [revoke])
    world.run(10)
    assert world.versions() == [1] * 5


AGAINST: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    ("floor", "floor", lambda digest: Floor(MODEL, 1, 9).payload()),
    ("model-revoke", "revoke", lambda digest: Revoke(MODEL, 1, digest, "by a thief").payload()),
    ("halt", "revoke", lambda digest: Halt(MODEL, 1, digest, "by a thief").payload()),
]
"""What takes a release off the fleet: kind, role, and the payload about a release."""


@pytest.mark.parametrize(("kind", "role", "payload"), AGAINST, ids=[one[0] for one in AGAINST])
def test_a_release_runs_again_when_what_spoke_against_it_falls_with_its_keys(
    kind: str, role: str, payload: Callable[[bytes], bytes]
) -> None:
    """Whoever has not heard that keys were replaced believes them; what that took away comes back with the news."""
    world = World(5)
    first = release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions() == [1] * 5)
    second = release_in(world, 1, V2, 2, first)
    world.run(60, lambda: world.versions() == [2] * 5)
    world.run(5)
    world.publish(4, [world.keys.sign(kind, payload(second), role)])
    world.run(10)
    assert 2 not in world.versions()
    world.replace_keys(role)
    world.run(60, lambda: world.versions() == [2] * 5)
    assert world.versions() == [2] * 5
    # And it is taken off again where the right keys say so.
    world.publish(3, [world.keys.sign(kind, payload(second), role, generation=1)])
    world.run(10)
    assert 2 not in world.versions()


def test_silence_never_promotes_but_a_force_does() -> None:
    world = World(8)
    world.react = lambda at, detail: None  # type: ignore[method-assign]  # Nobody ever answers.
    digest = release_in(world, 0, V1, 1)
    world.run(30)
    assert not any(
        node.standing(MODEL, digest, node.view.models[MODEL].releases[digest]).promoted for node in world.nodes
    )
    force = world.keys.sign("force", Force(MODEL, 1, digest, 3).payload(), "release")
    world.publish(2, [force])
    world.run(5)
    assert all(node.standing(MODEL, digest, node.view.models[MODEL].releases[digest]).promoted for node in world.nodes)


def test_a_halt_wins_over_a_force() -> None:
    world = World(4)
    digest = release_in(world, 0, V1, 1)
    world.publish(
        0,
        [
            world.keys.sign("force", Force(MODEL, 1, digest, 3).payload(), "release"),
            world.keys.sign("halt", Halt(MODEL, 1, digest, "stop").payload(), "revoke"),
        ],
    )
    world.run(20)
    assert world.versions() == [0] * 4


def test_a_partition_waits_and_heals() -> None:
    world = World(8)
    world.partition({0, 1, 2}, {3, 4, 5, 6, 7})
    release_in(world, 0, V1, 1)
    world.run(40)
    assert all(version == 0 for version in world.versions()[3:])
    world.partition()
    world.run(120, lambda: world.versions() == [1] * 8)
    assert world.versions() == [1] * 8


def test_a_restarted_node_knows_what_it_knew_and_its_numbers_rise() -> None:
    world = World(3)
    release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions() == [1] * 3)
    before = world.nodes[1].local[MODEL].sequence
    world.nodes[1] = world.build(1)
    world.perform(1, world.nodes[1].start(world.now))
    assert world.nodes[1].desired(MODEL) is not None
    assert world.nodes[1].local[MODEL].sequence > before


def test_floor_and_heartbeat_spread() -> None:
    world = World(4)
    world.publish(
        0,
        [
            world.keys.sign("floor", Floor(MODEL, 1, 7).payload(), "floor"),
            world.keys.sign("heartbeat", Heartbeat(1, 5).payload(), "heartbeat"),
        ],
    )
    world.run(5)
    assert all(node.view.heartbeat == (1, 5) for node in world.nodes)
    assert all(node.view.models[MODEL].floor == Floor(MODEL, 1, 7) for node in world.nodes)


def test_keys_of_another_fleet_say_nothing() -> None:
    world = World(2)
    foreign = Keys("others", world.crypto).sign("floor", Floor(MODEL, 1, 7).payload(), "floor")
    grew, effects = world.nodes[0].statements.hear(foreign.encode(), "peer")
    assert not grew
    assert any(getattr(effect, "reason", "").startswith("floor statement lacks") for effect in effects)


def test_a_trial_that_could_not_be_made_is_tried_again_later_not_at_once() -> None:
    world = World(2)
    tries: list[int] = []

    def busy(at: int, detail: object) -> None:
        if isinstance(detail, requests.StartTrial):
            tries.append(world.now)
            ended = requests.TrialEnded(detail.release.model, detail.digest, Verdict.NONE, 0, 0, "no eye is free here")
            world.perform(at, world.nodes[at].on_command(ended, world.now))

    world.react = busy  # type: ignore[method-assign]
    release_in(world, 0, V1, 1)
    world.run(50)
    assert 2 <= len(tries) <= 8


def test_a_dead_canary_costs_its_turn_and_no_more() -> None:
    world = World(6)
    world.run(10)
    probe = world.keys.sign("release", make_release(V1, 1).payload(), "release")
    order = rollout.ranks(probe.digest, world.ids)
    dead = next(at for at, node in enumerate(world.ids) if order[node] == 0)
    alive = world.react

    def react(at: int, detail: object) -> None:
        if at != dead:
            alive(at, detail)

    world.react = react  # type: ignore[method-assign]
    world.publish((dead + 1) % 6, [probe], V1)
    world.run(15)
    assert sum(world.versions()) <= 1
    world.run(120)
    assert sum(world.versions()) == 5


def test_a_cache_keeps_the_files_and_has_no_say() -> None:
    world = World(3)
    world.nodes[2].policy.config = replace(world.nodes[2].policy.config, models=(), caches=(MODEL,))
    world.nodes[2].policy.local = {MODEL: LocalModel(runs=False)}
    world.nodes[2].book.statuses.clear()
    digest = release_in(world, 0, V1, 1)
    world.run(30)
    assert world.stores[2].has_blob(world.nodes[2].view.models[MODEL].releases[digest].bundle[0].blob.sha256)
    assert not world.tried[2]


def test_nothing_is_tried_before_the_daemon_has_said_what_runs() -> None:
    world = World(3)
    first = release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions() == [1] * 3)
    again = world.build(1)
    effects = [*again.start(world.now), *again.on_peers([], world.now)]
    said = [one.detail for one in effects if isinstance(one, StateChanged)]
    assert not [one for one in said if isinstance(one, requests.Prepare | requests.StartTrial)]
    effects = again.on_command(requests.Running(MODEL, first), world.now)
    said = [one.detail for one in effects if isinstance(one, StateChanged)]
    assert not [one for one in said if isinstance(one, requests.StartTrial)], "it runs; it is not tried again"


def test_after_every_holder_has_restarted_a_newcomer_still_gets_the_release() -> None:
    world = World(4)
    world.partition({3}, {0, 1, 2})
    first = release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions()[:3] == [1] * 3)
    for at in range(3):
        world.nodes[at] = world.build(at)
        world.due[at].clear()
        world.perform(at, world.nodes[at].start(world.now))
        world.command(at, requests.Running(MODEL, first))
    world.partition()
    world.run(60, lambda: world.versions() == [1] * 4)
    assert world.versions() == [1] * 4


def test_when_everybody_has_everything_they_fall_silent() -> None:
    world = World(6)
    first = release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions() == [1] * 6)
    release_in(world, 2, V2, 2, first)
    world.run(60, lambda: world.versions() == [2] * 6)
    world.run(60)
    told = []
    perform = world.perform
    world.perform = lambda at, effects: (  # type: ignore[method-assign]
        told.extend(one for one in effects if isinstance(one, Send)),
        perform(at, effects),
    )[1]
    world.run(120)
    assert len(told) <= 6 * 5 * 3, "a word a minute for each pair and file at most"


def restart(world: World, at: int, running: bytes) -> None:
    world.nodes[at] = world.build(at)
    world.due[at].clear()
    world.perform(at, world.nodes[at].start(world.now))
    world.meet()
    world.command(at, requests.Running(MODEL, running))


def test_a_restarted_node_takes_back_what_it_said_before_and_all_agree_again() -> None:
    world = World(4)
    first = release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions() == [1] * 4)
    second = release_in(world, 1, V2, 2, first)
    world.run(60, lambda: world.versions() == [2] * 4)
    restart(world, 2, second)
    world.run(10)
    assert len({node.summary() for node in world.nodes}) == 1
    assert world.nodes[2].book.verdicts(first)[world.ids[2]] is Verdict.PASS


def test_a_node_that_lost_its_journal_does_not_use_its_numbers_again() -> None:
    world = World(3)
    first = release_in(world, 0, V1, 1)
    world.run(60, lambda: world.versions() == [1] * 3)
    before = world.nodes[1].local[MODEL].sequence
    world.journals[1].clear()
    restart(world, 1, first)
    world.run(10)
    assert world.nodes[1].local[MODEL].sequence >= before
    last = {node.book.statuses[world.ids[1], MODEL].envelope.digest for node in world.nodes}
    assert last == {world.nodes[1].local[MODEL].said}, "what it says now is what all take for its word"
    assert len({node.summary() for node in world.nodes}) == 1


def test_files_that_a_disk_has_lost_are_no_verdict_on_the_release() -> None:
    world = World(4)
    lost: list[int] = []
    react = world.react

    def forgetful(at: int, detail: object) -> None:
        if isinstance(detail, requests.StartTrial) and not lost and at:  # Not at the only source of the file.
            lost.append(at)
            digest = detail.release.bundle[0].blob.sha256
            world.stores[at].chunks[digest].pop(0)
            world.push(world.now, at, requests.BlobsLost((digest,)))
            world.push(world.now, at, requests.TrialEnded(MODEL, detail.digest, Verdict.NONE, 0, 0, "damaged"))
            world.nodes[at].local[MODEL].trial = detail.digest
            return
        react(at, detail)

    world.react = forgetful  # type: ignore[method-assign]
    release_in(world, 0, V1, 1)
    world.run(120, lambda: world.versions() == [1] * 4)
    assert lost
    assert world.versions() == [1] * 4
    assert world.stores[lost[0]].has_blob(
        world.nodes[0].view.models[MODEL].releases[world.running[0]].bundle[0].blob.sha256
    )
    assert not any(node.halted(MODEL) for node in world.nodes)


def test_no_chunk_comes_twice_on_a_sound_network() -> None:
    world = World(8, seed=5)
    release_in(world, 0, bytes(range(256)) * 4_000, 1)
    world.run(60, lambda: world.versions() == [1] * 8)
    accounts = [one for node in world.nodes for swarm in node.fetcher.swarms for one in swarm.accounts.values()]
    assert sum(one.received for one in accounts) == 7 * 256 * 4_000
    assert not sum(one.wasted for one in accounts)


@pytest.mark.parametrize("is_revoked", [False, True])
def test_files_of_a_release_that_is_desired_no_more_are_not_fetched_on(is_revoked: bool) -> None:
    """They would share the uplinks with those of the release that took its place."""
    world = World(3, upload_bytes_s=4_000)
    first = release_in(world, 0, V1, 1)
    old = make_release(V1).bundle[0].blob.sha256
    world.run(4)
    if is_revoked:
        revoke = world.keys.sign("model-revoke", Revoke(MODEL, 1, first, "wrong labels").payload(), "revoke")
        world.publish(0, [revoke])
    release_in(world, 0, V2, 2, first)
    world.run(2)  # The news has come, and what was on its way.
    here = [node.fetcher.progress(old) for node in world.nodes[1:]]
    assert all(0 < some < in_all for some, in_all in here)
    world.run(90, lambda: world.versions() == [2] * 3)
    assert world.versions() == [2] * 3
    assert [node.fetcher.progress(old) for node in world.nodes[1:]] == here


def test_a_release_that_is_desired_again_is_fetched_to_its_end() -> None:
    world = World(3, upload_bytes_s=4_000)
    first = release_in(world, 0, V1, 1)
    world.run(4)
    bad = release_in(world, 0, V2, 2, first)
    world.run(2)
    world.publish(0, [world.keys.sign("model-revoke", Revoke(MODEL, 1, bad, "wrong labels").payload(), "revoke")])
    world.run(90, lambda: world.versions() == [1] * 3)
    assert world.versions() == [1] * 3


@pytest.mark.parametrize("pause_s", [60.0, 4.0])
def test_however_many_releases_came_before_the_next_is_fetched(pause_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that no desired release needs any more give way, be they whole or begun."""
    monkeypatch.setattr(fetching, "MAX_BLOBS", 3)
    world = World(2, upload_bytes_s=0 if pause_s > 10 else 4_000)
    latest = b""
    for version in range(1, 7):
        latest = release_in(world, 0, bytes([version]) * 60_000, version, latest)
        world.run(pause_s, lambda now=version: world.versions() == [now] * 2)
    world.run(90, lambda: world.versions() == [6] * 2)
    assert world.versions() == [6] * 2
    assert all(len(node.fetcher.swarms) <= 3 for node in world.nodes)
