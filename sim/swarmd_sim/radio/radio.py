"""The radio model: who hears whom, how long a frame is on the air, and what gets lost.

Integer arithmetic only: distances in centimetres, levels in milli-dB, time in nanoseconds, probabilities in parts per
million. Logarithms come from a table computed by `decimal`, which rounds the same way on every machine.

The medium is carrier-sense with half duplex: the floor is cut into squares as wide as the carrier-sense range, and a
transmission occupies its square and the eight around it. Two stations in range of one receiver but in squares that
do not see each other are hidden from each other; their frames add up as interference at the receiver.
"""

import random
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Protocol

import msgspec

from swarmd_sim.run.choices import MILLION, Choices, derived_seed

_FRACTION_BITS = 10
_NS_PER_S = 1_000_000_000


@cache
def _fraction_table() -> tuple[int, ...]:
    """10 * log10(1 + i / 1024) in milli-dB, correctly rounded."""
    return tuple(
        int((Decimal(10_000) * (1 + Decimal(index) / (1 << _FRACTION_BITS)).log10()).to_integral_value())
        for index in range(1 << _FRACTION_BITS)
    )


def decibel_milli(value: int) -> int:
    """10 * log10(value) in milli-dB, in integers.

    Args:
        value: At least 1.

    Returns:
        Milli-dB, within 5 of the exact value.

    >>> decibel_milli(1), decibel_milli(1000)
    (0, 29999)
    """
    bits = value.bit_length() - 1
    mantissa = (value << _FRACTION_BITS) >> bits
    # 3.0103 dB an octave.
    return bits * 30_103 // 10 + _fraction_table()[mantissa - (1 << _FRACTION_BITS)]


@dataclass(frozen=True, slots=True)
class Ridge:
    """A straight ridge: links that cross it lose `loss_mdb` more."""

    from_cm: tuple[int, int]
    to_cm: tuple[int, int]
    loss_mdb: int


@dataclass(frozen=True, slots=True)
class JammingDisc:
    """Everybody within the disc hears only noise."""

    centre_cm: tuple[int, int]
    radius_cm: int


@dataclass(frozen=True, slots=True)
class RadioConfig:
    """What the radio is like; times in nanoseconds, levels in milli-dB."""

    model: str = "disc"
    """"disc" (everybody in `range_m` hears with `loss_ppm`) or "pathloss"."""
    range_cm: int = 0
    """0: no limit (model "disc")."""
    rate_bit_s: int = 6_000_000
    latency_ns: int = 2_000_000
    jitter_ns: int = 3_000_000
    loss_ppm: int = 0
    shared_air: bool = True
    preamble_ns: int = 120_000
    header_bytes: int = 64
    """MAC, IP and UDP headers."""
    retries: int = 3
    """Link-layer retries of a unicast frame."""
    queue_frames: int = 64
    """Frames that one station may have waiting for the air; the next one is dropped."""
    tx_power_mdb: int = 20_000
    reference_loss_mdb: int = 40_000
    """At one metre."""
    exponent_milli: int = 2_700
    shadowing_mdb: int = 4_000
    """About one standard deviation, drawn once for each pair."""
    noise_mdb: int = -95_000
    carrier_sense_cm: int = 30_000
    ridges: tuple[Ridge, ...] = ()


# PER by SINR for a 1,000-byte frame at a rate that needs about 8 dB: (SINR milli-dB, lost parts per million).
PER_TABLE: tuple[tuple[int, int], ...] = (
    (0, 1_000_000),
    (4_000, 980_000),
    (6_000, 700_000),
    (8_000, 250_000),
    (10_000, 60_000),
    (12_000, 12_000),
    (15_000, 1_000),
    (20_000, 0),
)


def packet_error_ppm(sinr_mdb: int, table: Sequence[tuple[int, int]] = PER_TABLE) -> int:
    """The share of frames lost at a signal-to-interference-and-noise ratio, by linear interpolation.

    Args:
        sinr_mdb: Milli-dB.
        table: Rising (SINR, parts per million) pairs.

    Returns:
        Parts per million.

    >>> packet_error_ppm(-1), packet_error_ppm(5_000), packet_error_ppm(99_000)
    (1000000, 840000, 0)
    """
    index = bisect_right(table, (sinr_mdb, MILLION + 1))
    if index == 0:
        return table[0][1]
    if index == len(table):
        return table[-1][1]
    (low, low_ppm), (high, high_ppm) = table[index - 1], table[index]
    return low_ppm + (high_ppm - low_ppm) * (sinr_mdb - low) // (high - low)


def crosses(ridge: Ridge, a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether the straight line from a to b crosses the ridge.

    Args:
        ridge: The ridge.
        a: One end, centimetres.
        b: The other end, centimetres.

    Returns:
        True when it does.
    """

    def side(p: tuple[int, int], q: tuple[int, int], r: tuple[int, int]) -> int:
        area = (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])
        return (area > 0) - (area < 0)

    return side(ridge.from_cm, ridge.to_cm, a) != side(ridge.from_cm, ridge.to_cm, b) and side(
        a, b, ridge.from_cm
    ) != side(a, b, ridge.to_cm)


class LinkTrace(Protocol):
    """Measured links that replace the model (see `traces.py`)."""

    def at(self, source: int, destination: int, now_ns: int) -> "TracePoint | None":
        """What the trace says of this link now; None when it does not know the link."""
        ...


@dataclass(frozen=True, slots=True)
class TracePoint:
    """One link at one time."""

    loss_ppm: int
    rate_bit_s: int
    delay_ns: int


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """What the air does to one frame."""

    lost: bool
    arrives_ns: int
    reason: str
    """"", or why it is lost: "range", "noise", "jammed", "queue", "half-duplex"."""


class Radio:
    """The shared medium of one run.

    Args:
        config: What the radio is like.
        choices: All randomness.
        trace: Measured links, if there are any.
    """

    def __init__(self, config: RadioConfig, choices: Choices, trace: LinkTrace | None = None) -> None:
        self.config = config
        self._choices = choices
        self._trace = trace
        self._everywhere = config.model == "disc" and not config.range_cm
        """No geometry: the loss is the same between any two."""
        self._loss = choices.stream("radio.loss")
        self._jitter = choices.stream("radio.jitter")
        self._positions: list[tuple[int, int]] = []
        self._free_ns: dict[tuple[int, int], int] = {}
        self._queues: dict[int, deque[int]] = {}
        self._on_air: dict[int, tuple[int, int]] = {}
        self._recent: deque[tuple[int, int, int]] = deque(maxlen=256)
        self._link_mdb: dict[tuple[int, int], tuple[tuple[int, int], tuple[int, int], int]] = {}
        self._shadow: dict[tuple[int, int], int] = {}
        self._shadow_salt: int | None = None
        self.jammers: dict[int, JammingDisc] = {}
        self.airtime_ns = 0

    def place(self, host: int, position_cm: tuple[int, int]) -> None:
        """Say where a host is.

        Args:
            host: Its index; hosts are placed in order.
            position_cm: East and north, centimetres.
        """
        while len(self._positions) <= host:
            self._positions.append((0, 0))
        self._positions[host] = position_cm

    def position_cm(self, host: int) -> tuple[int, int]:
        """Where a host is."""
        return self._positions[host]

    def send(self, source: int, destination: int, size: int, now_ns: int) -> Verdict:
        """Put one unicast frame on the air.

        Args:
            source: Host that sends.
            destination: Host that should hear it.
            size: Bytes of the frame's payload.
            now_ns: Virtual time.

        Returns:
            Whether and when it arrives.
        """
        config = self.config
        point = self._trace.at(source, destination, now_ns) if self._trace is not None else None
        if point is not None:
            loss_ppm, reason, rate, latency = point.loss_ppm, "noise", point.rate_bit_s, point.delay_ns
        else:
            rate, latency = config.rate_bit_s, config.latency_ns
            if self._everywhere and not self.jammers:
                loss_ppm, reason = config.loss_ppm, "noise"
            else:
                loss_ppm, reason = self._link_loss(source, destination, now_ns)
        attempts, lost = self._tries(loss_ppm) if loss_ppm else (1, False)
        frame_ns = config.preamble_ns + (size + config.header_bytes) * 8 * _NS_PER_S // rate
        start_ns = self._take_air(source, now_ns, frame_ns * attempts)
        if start_ns < 0:
            return self._drop("queue")
        if lost:
            return self._drop(reason)
        end_ns = start_ns + frame_ns * attempts
        if self._deaf(destination, start_ns, end_ns):
            return self._drop("half-duplex")
        jitter = config.jitter_ns
        return Verdict(False, end_ns + latency + (self._jitter(jitter) if jitter else 0), "")

    def cast(self, source: int, destinations: Sequence[int], size: int, now_ns: int) -> list[Verdict]:
        """Put one frame for everybody on the air: it takes the air once, nobody acknowledges it, nothing is sent again.

        Args:
            source: Host that sends.
            destinations: Hosts that listen.
            size: Bytes of the frame's payload.
            now_ns: Virtual time.

        Returns:
            For each destination, whether and when it arrives there.
        """
        frame_ns = self.config.preamble_ns + (size + self.config.header_bytes) * 8 * _NS_PER_S // self.config.rate_bit_s
        start_ns = self._take_air(source, now_ns, frame_ns)
        return [self._overheard(source, host, start_ns, start_ns + frame_ns, now_ns) for host in destinations]

    def _overheard(self, source: int, host: int, start_ns: int, end_ns: int, now_ns: int) -> Verdict:
        if start_ns < 0:
            return self._drop("queue")
        point = self._trace.at(source, host, now_ns) if self._trace is not None else None
        loss_ppm, reason = (point.loss_ppm, "noise") if point is not None else self._link_loss(source, host, now_ns)
        if loss_ppm and self._loss(MILLION) >= MILLION - loss_ppm:
            return self._drop(reason)
        if self._deaf(host, start_ns, end_ns):
            return self._drop("half-duplex")
        latency_ns = point.delay_ns if point is not None else self.config.latency_ns
        jitter = self.config.jitter_ns
        return Verdict(False, end_ns + latency_ns + (self._jitter(jitter) if jitter else 0), "")

    def _tries(self, loss_ppm: int) -> tuple[int, bool]:
        """How often the link layer sends the frame, and whether it is lost after all."""
        # One draw decides: p, p^2, p^3 … in integers.
        draw, chance = self._loss(MILLION), loss_ppm
        for attempt in range(1, self.config.retries + 2):
            if draw < MILLION - chance:
                return attempt, False
            chance = chance * loss_ppm // MILLION
        return self.config.retries + 1, True

    @property
    def everybody_hears(self) -> bool:
        """Whether no geometry, jammer or trace keeps any two hosts apart."""
        return not self.jammers and not self.has_geometry

    def hears(self, source: int, destination: int, now_ns: int) -> bool:
        """Whether a frame has a fair chance (under 50 % loss before retries); for checkers and reports.

        Args:
            source: Host that sends.
            destination: Host that should hear it.
            now_ns: Virtual time.

        Returns:
            True when it has.
        """
        point = self._trace.at(source, destination, now_ns) if self._trace is not None else None
        loss_ppm = point.loss_ppm if point is not None else self._link_loss(source, destination, now_ns)[0]
        return loss_ppm < MILLION // 2

    @staticmethod
    def _drop(reason: str) -> Verdict:
        return Verdict(True, 0, reason)

    def _link_loss(self, source: int, destination: int, now_ns: int) -> tuple[int, str]:
        config = self.config
        if self.jammers and (self._jammed(source) or self._jammed(destination)):
            return MILLION, "jammed"
        if config.model == "disc":
            if config.range_cm and self._distance2(source, destination) > config.range_cm * config.range_cm:
                return MILLION, "range"
            return config.loss_ppm, "noise"
        signal = self._signal_mdb(source, destination)
        sinr = signal - self._noise_mdb(source, destination, now_ns)
        loss = packet_error_ppm(sinr)
        if config.loss_ppm:
            loss += (MILLION - loss) * config.loss_ppm // MILLION
        return loss, "noise" if loss < MILLION else "range"

    def _distance2(self, a: int, b: int) -> int:
        (ax, ay), (bx, by) = self._positions[a], self._positions[b]
        return (ax - bx) * (ax - bx) + (ay - by) * (ay - by)

    def _jammed(self, host: int) -> bool:
        x, y = self._positions[host]
        return any(
            (x - disc.centre_cm[0]) ** 2 + (y - disc.centre_cm[1]) ** 2 <= disc.radius_cm**2
            for disc in self.jammers.values()
        )

    def _signal_mdb(self, source: int, destination: int) -> int:
        a, b = self._positions[source], self._positions[destination]
        cached = self._link_mdb.get((source, destination))
        if cached is not None and cached[0] is a and cached[1] is b:
            return cached[2]
        config = self.config
        # 10 n log10(d) = n / 2 * 10 log10(d^2); distances in metres, hence 40 dB less for centimetres squared.
        metres2_mdb = max(0, decibel_milli(max(1, self._distance2(source, destination))) - 40_000)
        level = config.tx_power_mdb - config.reference_loss_mdb - metres2_mdb * config.exponent_milli // 2_000
        level += self._shadowing(source, destination)
        level -= sum(ridge.loss_mdb for ridge in config.ridges if crosses(ridge, a, b))
        self._link_mdb[(source, destination)] = (a, b, level)
        return level

    def _shadowing(self, a: int, b: int) -> int:
        pair = (a, b) if a < b else (b, a)
        value = self._shadow.get(pair)
        if value is None:
            value = self._shadow[pair] = self._drawn_shadow(pair)
        return value

    def _drawn_shadow(self, pair: tuple[int, int]) -> int:
        """A pair's shadowing: one draw of the run and the pair decide it, whoever asks first."""
        if self._shadow_salt is None:
            self._shadow_salt = self._choices.choose("radio.shadow", 1 << 53)
        spread, total = self.config.shadowing_mdb, 0
        if spread and self._shadow_salt:  # A draw of 0 gives the benign end.
            # Four uniform draws make a bell of the wanted width.
            uniform = random.Random(derived_seed(self._shadow_salt, f"{pair[0]}/{pair[1]}")).random
            total = sum(int(uniform() * (2 * spread + 1)) for _ in range(4))
        return (4 * spread - total) * 866 // 1_000

    @property
    def has_geometry(self) -> bool:
        """Whether who hears whom depends on where they are, or on measured links, and not on faults alone."""
        return self._trace is not None or self.config.model != "disc" or bool(self.config.range_cm)

    def _noise_mdb(self, source: int, destination: int, now_ns: int) -> int:
        """Thermal noise, or the loudest hidden station that is on the air now, whichever is louder."""
        noise = self.config.noise_mdb
        if not self.config.shared_air:
            return noise
        near = self._square(source)
        for start_ns, end_ns, other in self._recent:
            if start_ns <= now_ns < end_ns and other != source and other != destination:
                square = self._square(other)
                if abs(square[0] - near[0]) > 1 or abs(square[1] - near[1]) > 1:
                    noise = max(noise, self._signal_mdb(other, destination))
        return noise

    def _square(self, host: int) -> tuple[int, int]:
        x, y = self._positions[host]
        pitch = self.config.carrier_sense_cm
        return x // pitch, y // pitch

    def _take_air(self, source: int, now_ns: int, airtime_ns: int) -> int:
        """When the transmission starts; -1 when the station's own queue is full."""
        if not self.config.shared_air:
            self.airtime_ns += airtime_ns
            return now_ns
        queue = self._queues.get(source)
        if queue is None:
            queue = self._queues[source] = deque()
        while queue and queue[0] <= now_ns:
            queue.popleft()
        if len(queue) >= self.config.queue_frames:
            return -1
        self.airtime_ns += airtime_ns
        free = self._free_ns
        x, y = self._square(source)
        start_ns = max(now_ns, free.get((x, y), 0))
        end_ns = start_ns + airtime_ns
        queue.append(end_ns)
        for square in ((x + dx, y + dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1)):
            if free.get(square, 0) < end_ns:
                free[square] = end_ns
        self._on_air[source] = (start_ns, end_ns)
        if self.config.model == "pathloss":
            self._recent.append((start_ns, end_ns, source))
        return start_ns

    def _deaf(self, host: int, start_ns: int, end_ns: int) -> bool:
        """Half duplex: a station that sends cannot hear."""
        own = self._on_air.get(host)
        return own is not None and own[0] < end_ns and start_ns < own[1]
