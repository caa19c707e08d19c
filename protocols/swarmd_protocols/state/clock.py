"""Swarm time: a hybrid logical clock that no peer can drag.

Rules this file keeps:

- The physical part is this node's monotonic clock plus an offset. The offset is the lower median of what authenticated
  peers answered, with this node's own wall clock as one more voter while fewer than three peers have answered. So one
  wrong clock among three changes nothing, and two nodes agree on the slower.
- A stamp from a peer is compared with the own physical estimate, never with the own logical clock: a peer that stays
  just inside the bound gains that bound once and never again.
- Once in step with the swarm, corrections are slewed and the clock never goes back.
- Time decides order, ties and expiry. It never decides leases (monotonic timers), causality (dots) or security.

A stamp is one integer: milliseconds since 2020-01-01 UTC, shifted left by 16, plus a logical counter.
"""

from dataclasses import dataclass

from swarmd_protocols.ids import NodeId

EPOCH_2020_NS = 1_577_836_800 * 1_000_000_000
"""Unix time of 2020-01-01, nanoseconds: stamps count milliseconds from there."""
LOGICAL_BITS = 16
"""Lowest bits of a stamp: a counter within one millisecond (hybrid logical clock, Kulkarni et al. 2014)."""
STAMP_MAX = (1 << 60) - 1
"""Largest stamp that is accepted from outside; the year 2577."""
_MS = 1_000_000
_FAR_YOUNG = 2
"""So many times as long a clock is young where fewer than three voters are near, as on a line: far ones answer one by
one, and no neighbourhoods overlap that would settle it."""

_FEW = 5
"""One in so many voters that say another time are few: they may be slow to answer, wrong or liars."""

_FAR_WEIGHT_MOST = 3
"""For so many voters a far one may stand at most: two that lie are still fewer than six near ones and one honest far
one."""


@dataclass(frozen=True, slots=True)
class ClockConfig:
    """Bounds of swarm time."""

    drift_bound_ms: int = 500
    """How far ahead of the own physical estimate a stamp may be before it is set aside."""
    voters_min: int = 3
    """Peers that must have answered before the clock counts as synchronised."""
    slew_ppm: int = 500
    far_slew_ppm: int = 10_000
    """The same where most voters are asked over others. There whole parts of a swarm begin with different times, each
    below what is stepped, and all of them move: 250 ms take half a minute and not eight. A hundredth is what nobody
    notices who reads an order of events."""
    far_unsure_slew_ppm: int = 83_333
    """The same while it is not sure: what others are told of a clock that still moves is wrong when they use it. It is
    what chrony allows itself (`maxslewrate`)."""
    contested_ms: int = 60
    """In a mesh answers that are farther than this from their median, or the own clock, say that parts of the swarm
    keep different times: below what is stepped, and above what the way to far ones and back makes of one time."""
    step_ms: int = 250
    """Errors above this are stepped, not slewed. Half of `drift_bound_ms`: of two clocks that lie within it of the
    same median neither sets aside what the other one stamps."""
    voter_age_ns: int = 120_000_000_000
    voters_max: int = 32
    unsettled_voters: int = 12
    """So many answers count, the latest ones, in the first two minutes of a clock in a mesh: whole parts of the swarm
    move then, and what their members said twenty seconds ago holds back whoever follows them."""
    round_trip_max_ns: int = 1_000_000_000
    """Slower answers say too little about the offset and are not counted."""
    outvoted_ns: int = 5_000_000_000
    """A synchronised clock that most voters contradict alike for this long is set once more."""
    young_ns: int = 20_000_000_000
    """So long after the first three answers others are asked often: the three may have been wrong themselves."""


def stamp_of(ms: int, logical: int = 0) -> int:
    """Compose a stamp.

    >>> stamp_of(1) == 65536
    True
    """
    return (ms << LOGICAL_BITS) | logical


def stamp_ms(stamp: int) -> int:
    """Milliseconds since 2020-01-01 UTC of a stamp."""
    return stamp >> LOGICAL_BITS


class Clock:
    """This node's view of swarm time."""

    def __init__(self, config: ClockConfig, wall_offset_ns: int) -> None:
        """Begin unsynchronised.

        Args:
            config: Bounds.
            wall_offset_ns: The device's wall clock (UTC since 1970) minus its monotonic clock; 0 where there is none.
        """
        self._config = config
        self._wall_offset_ns = (wall_offset_ns - EPOCH_2020_NS) if wall_offset_ns else 0
        self._offset_ns = self._wall_offset_ns
        self._target_ns = self._offset_ns
        self._votes: dict[NodeId, tuple[int, int]] = {}
        self._slewed_at_ns = 0
        self._last = 0
        self.synced = False
        self.asks_far = False
        """Whether most voters are asked over others, since few are in reach."""
        self.has_few_near = False
        """Whether those are fewer than must have answered, so that others have to be asked over them."""
        self.settles_ns = 0
        """So long after it was set what members beyond the reach of questions say may still be on its way."""
        self.voters = 0
        """How many can be asked."""
        self.near: frozenset[NodeId] = frozenset()
        """Who of them is in reach. In a mesh they are the first to answer, and the others count for more until as many
        of those have."""
        self._stepped_ms = 0
        self._synced_ns = 0
        self._outvoted_ns: int | None = None
        """Since when most voters agree on another time."""

    @property
    def knows_time(self) -> bool:
        """Whether anybody, be it only the device's own wall clock, has said what time it is."""
        return self.synced or self._wall_offset_ns != 0

    @property
    def voters_min(self) -> int:
        """Peers that must answer before the clock counts as synchronised."""
        return self._config.voters_min

    @property
    def offset_ns(self) -> int:
        """Swarm time minus the monotonic clock, nanoseconds."""
        return self._offset_ns

    def physical_ns(self, now_ns: int) -> int:
        """Swarm time as this node estimates it, nanoseconds since 2020-01-01 UTC."""
        return max(0, now_ns + self._offset_ns)

    def physical_ms(self, now_ns: int) -> int:
        """The same in milliseconds."""
        return max(0, now_ns + self._offset_ns) // _MS

    def tick(self, now_ns: int) -> int:
        """A new stamp, larger than every stamp of this life."""
        physical = self.physical_ms(now_ns) << LOGICAL_BITS
        self._last = physical if physical > self._last else self._last + 1
        return self._last

    def is_ahead(self, stamp: int, now_ns: int) -> bool:
        """Whether a stamp lies farther in the future than clocks may differ."""
        return (stamp >> LOGICAL_BITS) > self.physical_ms(now_ns) + self._config.drift_bound_ms

    def is_sure(self, now_ns: int) -> bool:
        """Whether enough peers have confirmed this clock for long enough that what it calls old is old."""
        return self.synced and not (
            self.is_young(now_ns)
            or self._is_contradicted()
            or self._hangs_on_the_new(now_ns)
            or self._is_contested(now_ns)
        )

    def _is_contested(self, now_ns: int) -> bool:
        """Whether parts of a mesh still keep times of their own, so that further ones are asked often.

        Two minutes at most, and never because of one voter: who lies keeps nobody unsure for good.
        """
        config = self._config
        passed_ns = now_ns - self._synced_ns
        if not self.asks_far or passed_ns >= config.voter_age_ns:
            return False
        if passed_ns < self.settles_ns:
            return True
        counted = self._counted(now_ns)
        if len(counted) < min(2 * config.voters_min, self.voters) or self._has_asked_few_far(now_ns):
            return True
        apart_ns = config.contested_ms * _MS
        votes = self._weighted(counted)
        others = sum(abs(vote - self._target_ns) > apart_ns for vote in votes)
        few = max(self._far_weight(counted), len(votes) // _FEW)
        return abs(self._target_ns - self._offset_ns) > apart_ns or others > few

    def _has_asked_few_far(self, now_ns: int) -> bool:
        """Whether of six that are settled fewer would be far than in the swarm.

        Those near agree with each other first, whatever the others say. One of the others may never answer.
        """
        others = self.voters - len(self.near)
        far = sum(voter not in self.near for voter, _ in self._settled(now_ns))
        return far < min(max(0, others - 1), -(-2 * self._config.voters_min * others // max(1, self.voters)))

    def _hangs_on_the_new(self, now_ns: int) -> bool:
        """Whether what all said while they were young counts still, such as after a cut that began then."""
        config = self._config
        if not self.has_few_near or now_ns - self._synced_ns >= config.voter_age_ns:
            return False
        return len(self._settled(now_ns)) < min(2 * config.voters_min, self.voters)

    def observe(self, stamp: int, now_ns: int) -> bool:
        """Take a peer's stamp into account.

        Returns:
            False when the stamp is beyond the bound: the caller sets the bytes aside and this clock does not move.
        """
        if self.is_ahead(stamp, now_ns):
            return False
        if stamp > self._last:
            self._last = stamp
        return True

    def vote(self, voter: NodeId, sent_ns: int, remote_physical_ns: int, now_ns: int) -> None:
        """Count one round trip with an authenticated peer.

        Args:
            voter: Who answered.
            sent_ns: This node's monotonic clock when it asked.
            remote_physical_ns: The peer's `physical_ns` when it answered.
            now_ns: This node's monotonic clock when the answer came.
        """
        round_trip_ns = now_ns - sent_ns
        if not 0 <= round_trip_ns <= self._config.round_trip_max_ns:
            return
        if voter not in self._votes and len(self._votes) >= self._config.voters_max:
            del self._votes[min(self._votes, key=lambda node: (self._votes[node][1], node))]
        self._votes[voter] = (remote_physical_ns - (sent_ns + round_trip_ns // 2), now_ns)
        self._settle(now_ns)

    def take_step_ms(self) -> int:
        """By how much the clock has been set since this was last asked: what was stamped before is off by that."""
        stepped, self._stepped_ms = self._stepped_ms, 0
        return stepped

    def is_young(self, now_ns: int) -> bool:
        """Whether it was only just set, so that whoever set it should be compared with others soon."""
        young_ns = (_FAR_YOUNG if self.has_few_near else 1) * self._config.young_ns
        return self.synced and now_ns - self._synced_ns < young_ns

    def is_new(self, now_ns: int) -> bool:
        """Whether it has not been set yet, or so lately that those who set it may be as new."""
        return not self.synced or now_ns - self._synced_ns < self._config.young_ns

    def heard_ns(self, voter: NodeId) -> int:
        """When a peer last answered; -1 where it has not."""
        return self._votes[voter][1] if voter in self._votes else -1

    def forget(self, voter: NodeId) -> None:
        """Drop a peer's vote (it was quarantined)."""
        self._votes.pop(voter, None)

    def _settle(self, now_ns: int) -> None:
        config = self._config
        counted = self._counted(now_ns)
        votes = self._weighted(counted)
        enough = len(counted) >= config.voters_min
        if not enough:
            votes = sorted([*votes, self._wall_offset_ns])
        self._target_ns = votes[(len(votes) - 1) // 2]
        error_ns = self._target_ns - self._offset_ns
        was_set_by_few = self._was_set_by_few(len(counted), now_ns)
        if not self._is_contradicted():
            self._outvoted_ns = None
        elif not self.synced or was_set_by_few or self._is_outvoted(votes, now_ns):
            if error_ns < 0:
                # The own clock ran ahead and nobody confirms it: stamps start again from swarm time.
                self._last = 0
            self._stepped_ms += error_ns // _MS
            self._outvoted_ns = None
            self._offset_ns = self._target_ns
            self._slewed_at_ns = now_ns
            if not was_set_by_few:
                self._synced_ns = now_ns  # Half of the voters, that swing, would keep it young and stepping for ever.
        if enough and not self.synced:
            self.synced = True
            self._synced_ns = now_ns
        self.slew(now_ns)

    def _counted(self, now_ns: int) -> list[tuple[NodeId, int]]:
        """Whose answers count still, and what each said.

        In a mesh all clocks move while they are young, and what their owners said then is of no time that anybody
        keeps: it counts no more once as many as it takes to step have answered since.
        """
        config = self._config
        since_ns = now_ns - config.voter_age_ns
        if not (self.asks_far and self.synced):
            return self._since(since_ns)
        settled = self._settled(now_ns)
        votes = settled if len(settled) >= 2 * config.voters_min else self._since(since_ns)
        if now_ns - self._synced_ns >= config.voter_age_ns or len(votes) <= config.unsettled_voters:
            return votes
        latest = sorted((self._votes[voter][1] for voter, _ in votes), reverse=True)
        return self._since(latest[config.unsettled_voters - 1])

    def _settled(self, now_ns: int) -> list[tuple[NodeId, int]]:
        """What was answered since those that this clock was set by have had time to be set themselves."""
        return self._since(max(now_ns - self._config.voter_age_ns, self._synced_ns + self._config.young_ns))

    def _since(self, since_ns: int) -> list[tuple[NodeId, int]]:
        return [(voter, offset) for voter, (offset, heard_ns) in self._votes.items() if heard_ns >= since_ns]

    def _weighted(self, counted: list[tuple[NodeId, int]]) -> list[int]:
        """What was said, the lowest first, and that of far ones as often as each stands for others."""
        weight = self._far_weight(counted)
        return sorted(offset for voter, offset in counted for _ in range(1 if voter in self.near else weight))

    def _far_weight(self, counted: list[tuple[NodeId, int]]) -> int:
        """For how many of those that are out of reach each counts that has answered.

        Near ones answer first and are asked more often: where all weigh alike, a neighbourhood that is larger than the
        far ones asked so far keeps a time of its own. Of few far voters two may lie: each counts for one less than they
        are.

        Source:
            Horvitz, Thompson: A generalization of sampling without replacement from a finite universe, 1952.
        """
        near = sum(voter in self.near for voter, _ in counted)
        far, others = len(counted) - near, self.voters - len(self.near)
        if not self.asks_far or not near or far < 2:
            return 1
        share = far * len(self.near)
        return min(_FAR_WEIGHT_MOST, far - 1, max(1, (2 * others * near + share) // (2 * share)))

    def _is_contradicted(self) -> bool:
        """Whether the median is another time; what peers answered may be a minute old, so they are asked often."""
        return abs(self._target_ns - self._offset_ns) > self._config.step_ms * _MS

    def _was_set_by_few(self, voters: int, now_ns: int) -> bool:
        """Whether this clock was only just set, by neighbours who have mostly one another, and many have been asked."""
        return self.asks_far and self.is_young(now_ns) and voters >= 2 * self._config.voters_min

    def _is_outvoted(self, votes: list[int], now_ns: int) -> bool:
        """Whether this clock was set by the wrong three, such as nodes that had only just started themselves.

        Slewing takes weeks for an hour, and until then each side sets aside or outranks what the other one says.
        """
        alike = sum(abs(vote - self._target_ns) <= self._config.drift_bound_ms * _MS for vote in votes)
        # The own clock is a vote too: of two halves that meet, neither takes the other's time.
        if 2 * alike <= len(votes) + 1:
            self._outvoted_ns = None
            return False
        if self._outvoted_ns is None:
            self._outvoted_ns = now_ns
        return now_ns - self._outvoted_ns >= self._config.outvoted_ns

    def slew(self, now_ns: int) -> None:
        """Move the offset towards the median, by a bounded share of the time that has passed since the last call."""
        passed_ns = max(0, now_ns - self._slewed_at_ns) if self._slewed_at_ns else 0
        self._slewed_at_ns = now_ns
        limit_ns = passed_ns * self._slew_ppm(now_ns) // 1_000_000
        error_ns = self._target_ns - self._offset_ns
        self._offset_ns += max(-limit_ns, min(limit_ns, error_ns))

    def _slew_ppm(self, now_ns: int) -> int:
        if not self.asks_far:
            return self._config.slew_ppm
        return self._config.far_slew_ppm if self.is_sure(now_ns) else self._config.far_unsure_slew_ppm
