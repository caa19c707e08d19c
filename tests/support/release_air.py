"""Real `Releases` of every node on one simulated radio channel: each frame takes the air, a cast takes it once."""

import random
from collections.abc import Sequence

from swarmd_protocols.channel.channel import GROUP_OVERHEAD_BYTES, PAIR_OVERHEAD_BYTES
from swarmd_protocols.releases.casting import CastConfig
from swarmd_protocols.releases.releases import Releases, ReleasesConfig
from swarmd_protocols.releases.swarming import SwarmingConfig
from swarmd_protocols.subprotocol import Cast, Send
from swarmd_sim.radio.radio import Radio, RadioConfig
from swarmd_sim.run.choices import Choices
from tests.support.release_world import World, make_release

_HEAD_BYTES = 16
_BURST_BYTES = 1_400
_AGAIN_NS = 50_000_000


class AirWorld(World):
    """`World` whose messages take airtime; what is reliable is sent again until it arrives."""

    def __init__(self, count: int, *, cast: bool, loss_ppm: int = 0, seed: int = 1, deaf: Sequence[int] = ()) -> None:
        self.cast_config = CastConfig(bytes_s=400 << 10) if cast else None
        radio = RadioConfig(loss_ppm=loss_ppm, jitter_ns=0, latency_ns=500_000, queue_frames=1 << 30)
        self.radio = Radio(radio, Choices(seed))
        for host in range(count):
            self.radio.place(host, (0, 0))
        self.deaf = set(deaf)
        self.dead: set[int] = set()
        self.cast_bytes = self.unicast_bytes = 0
        super().__init__(count, seed)

    def build(self, at: int) -> Releases:
        config = ReleasesConfig(models=("solar",), swarming=SwarmingConfig(), cast=self.cast_config)
        seed = self.seeds[at]
        public = self.crypto.public_key(seed)
        rng = random.Random(self.seed * 1000 + at)
        sign = lambda message: self.crypto.sign(seed, message)  # noqa: E731
        return Releases(public, sign, self.trusts[at], config, rng, self.journals[at])

    def perform(self, at: int, effects: Sequence[object]) -> None:
        if at in self.dead:
            return
        others = [effect for effect in effects if not isinstance(effect, Send | Cast)]
        for effect in effects:
            if isinstance(effect, Send):
                self.unicast(at, self.index[effect.to], effect.payload)
            elif isinstance(effect, Cast):
                self.broadcast(at, effect.payload)
        super().perform(at, others)

    def unicast(self, at: int, to: int, payload: bytes) -> None:
        self.step(at, _Going(to, payload, len(payload) + PAIR_OVERHEAD_BYTES + _HEAD_BYTES))

    def step(self, at: int, going: "_Going") -> None:
        """Send the next packet of a reliable message, or the same one again a little later."""
        packet = min(going.left, _BURST_BYTES)
        verdict = self.radio.send(at, going.to, packet, self.now)
        self.unicast_bytes += packet
        if verdict.lost:
            self.push(self.now + _AGAIN_NS, at, going)
            return
        going.left -= packet
        if going.left:
            self.push(verdict.arrives_ns, at, going)
        else:
            self.push(verdict.arrives_ns, going.to, (at, going.payload))

    def broadcast(self, at: int, payload: bytes) -> None:
        size = len(payload) + GROUP_OVERHEAD_BYTES + _HEAD_BYTES
        assert size <= 1_200, "a cast fits one datagram"
        self.cast_bytes += size
        others = [other for other in range(self.count) if other != at]
        for to, verdict in zip(others, self.radio.cast(at, others, size, self.now), strict=True):
            if not verdict.lost and to not in self.deaf:
                self.push(verdict.arrives_ns, to, _Heard(payload))

    def command(self, at: int, request: object) -> None:
        if at in self.dead:
            return
        if isinstance(request, _Going):
            self.step(at, request)
        elif isinstance(request, _Heard):
            self.perform(at, self.nodes[at].on_cast(request.payload, self.now))
        else:
            super().command(at, request)

    def die(self, at: int) -> None:
        """The node says nothing any more, and the others come to know it."""
        self.dead.add(at)
        self.partition({at}, set(range(self.count)) - {at})

    def spread(self, data: bytes, seconds: float = 300.0, first: int = 0) -> float:
        """Publish a release of this file at a node; seconds until the last living node has all of it."""
        self.run(2)
        release = make_release(data)
        began_ns, digest = self.now, release.bundle[0].blob.sha256
        self.cast_bytes = self.unicast_bytes = 0
        self.radio.airtime_ns = 0
        envelope = self.keys.sign("release", release.payload(), "release")
        self.publish(first, [envelope], data)
        living = [store for at, store in enumerate(self.stores) if at not in self.dead]
        self.run(seconds, lambda: all(store.has_blob(digest) for store in living))
        assert all(store.has_blob(digest) for store in living), "some node never got the file"
        assert all(store.blob(release.bundle[0].blob) == data for store in living)
        return (self.now - began_ns) / 1e9


class _Heard:
    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class _Going:
    def __init__(self, to: int, payload: bytes, left: int) -> None:
        self.to, self.payload, self.left = to, payload, left
