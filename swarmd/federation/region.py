"""The region: hears the gateways of many swarms, keeps what holds, and answers for all of them.

Everything that it keeps of a swarm passed that swarm's gate (`swarmd_protocols.federation.gate`). Frames are gathered
for a moment and written down together; a row is acknowledged once it is on the disk. What the file refuses of one frame
is refused to its gateway, and keeps nobody else's from being written.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from swarmd.federation.lines import Line, missed
from swarmd.federation.marks import Marks
from swarmd.federation.seers import Judging
from swarmd.federation.store import Store, add_trust, newest_down
from swarmd.federation.uplink import MakeUplink, Place, Uplink
from swarmd.sqlite_files import is_of_the_row
from swarmd_protocols.crypto import Crypto
from swarmd_protocols.federation.allowance import Allowance
from swarmd_protocols.federation.gate import Gate, Heard, Pin, RecordRow, TrustTaken
from swarmd_protocols.federation.objects import Derived
from swarmd_protocols.federation.wire import (
    EPOCH_BYTES,
    FRAME_FILL_BYTES,
    KNOWN_MAX,
    LIFE_HEARD,
    NUMBER_MAX,
    ROWS_MAX,
    SALT_BYTES,
    WANTED_MAX,
    Down,
    DownRow,
    Known,
    SiteRow,
    Way,
    ranges,
)
from swarmd_protocols.ids import NodeId
from swarmd_protocols.releases.reports import Report

GATHER_S = 0.02
"""Seconds for which frames are gathered before they are written down together: a fiftieth of what a row may take."""
GATHERED_MAX = 512
"""Frames that wait to be written down; beyond, they are dropped, and come again, but for a swarm's equal part of as
many, one at the least: several that say the smallest frames without end take none of another's."""
GATHERED_OF_ONE = GATHERED_MAX // 4
"""Of one swarm, for the same reason as `gate.STRANGERS_BURST_BYTES`: the smallest frames cost its quota little."""
LIVE_S = 15.0
"""A gateway that was heard within this is told what others brought, and what is new for its swarm."""
TIDY_S = 30.0
"""Seconds between two looks at the bounds of the tables."""
STRANGERS_BYTES_S, STRANGERS_BURST_BYTES = 16_384, 1 << 20
"""What all keys without a certificate together may cost: a gateway's first words are some kilobytes."""
ROWS_AGAIN_S = 1.0
"""Before the same rows go down to a gateway once more: with each answer, small frames would have large ones."""
DOWN_BURST_BYTES = 1 << 20
"""Rows that go down to a swarm at once where its gateways say that they took others in, and then at its quota's rate;
beyond, each gateway gets some each `ROWS_AGAIN_S`: one that lies about it has small frames answered by large ones."""
PAUSE_AGAIN_S = 0.5
"""Between two answers to a gateway that its swarm's quota is used up: frames beyond it would cost as much as any."""
REFUSED_AGAIN_S = 60.0
"""Between two words to people on rows of one swarm that are refused: a clock that is ahead has all of them refused."""
NAMED_MAX = 16
"""Swarms whose frames are nothing here and that are named, each once: anybody may invent more."""

_UNPINNED = (
    "frames come of a swarm that is not pinned here ({}); if it is to be: swarmd region pin DIR NAME --root "
    "FLEET/roots/0001.root --swarm SWARM, with the first root of its fleet and its own name"
)
_UNOPENED = (
    "{}: frames come that open under no key of this region; set federation.region_key of its gateways to what "
    "swarmd region show prints here"
)


class Region:
    """One region's process.

    Args:
        pins: The swarms that are let in.
        seed: The region's Ed25519 seed.
        crypto: The library.
        store: Its memory.
        paths: Addresses of brokers.
        prefix: Of all places.
        make_uplink: Makes one path.
        say: Told what goes wrong, for people.
        clock_ms: Milliseconds since 1970, by which stamps are judged.
    """

    def __init__(
        self,
        pins: Sequence[Pin],
        seed: bytes,
        crypto: Crypto,
        store: Store,
        paths: Sequence[str],
        prefix: str,
        make_uplink: MakeUplink,
        say: Callable[[str], None],
        clock_ms: Callable[[], int] = lambda: round(time.time() * 1000),
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._say = say
        self._marks = Marks(store, round(time.time() * 1000))
        self._life = store.next_life(int(time.time()))
        self._number = 0
        strangers = Allowance(STRANGERS_BYTES_S, STRANGERS_BURST_BYTES)
        self.gates: dict[bytes, Gate] = {}
        for pin in pins:
            name = pin.key.hex()
            gate = Gate(pin, seed, crypto, store.trust(name), store.lives(name), strangers, clock_ms)
            self.gates[gate.key] = gate
        store.know_swarms(pins)
        self._lines: dict[bytes, dict[NodeId, Line]] = {key: {} for key in self.gates}
        """Swarm to its gateways that were heard."""
        self._down = {key: Allowance(gate.pin.quota_bytes_s, DOWN_BURST_BYTES) for key, gate in self.gates.items()}
        """Swarm to what may go down to it at once."""
        self._unkept: set[bytes] = set()
        """Swarms whose trust has news that the disk did not take."""
        self._judging = Judging(key.hex() for key in self.gates)
        self._told = set(self.gates)
        """Swarms of which more statements may be on the disk than count: all that came, until the bounds are kept."""
        self._gathered: list[tuple[int, Gate, Heard]] = []
        self._gathered_of: dict[bytes, int] = {}
        """Swarm to how many of these are its."""
        self._above: dict[tuple[bytes, NodeId], set[bytes]] = {}
        """(swarm, gateway) to objects of which it has said a word that is not the greatest."""
        self._missed: dict[tuple[bytes, NodeId], Sequence[Known]] = {}
        """(swarm, gateway) that is heard anew to what others have said since it was heard last."""
        self._is_gathering = asyncio.Event()
        self._named: set[bytes] = set()
        """Swarms of which it was said that their frames are nothing here."""
        self._refused_s: dict[bytes, float] = {}
        """Swarm to when it was said last that rows of it are refused."""
        self._down_seen = -1
        self._newest: Mapping[str, int] = {}
        """Swarm to the highest number of what there is for it."""
        self._look_down()
        self.counts: dict[str, int] = {"frames": 0, "rows": 0, "refused": 0, "unpinned": 0, "dropped": 0, "answers": 0}
        pattern = f"{prefix}/+/up/+"
        self._uplinks: list[Uplink] = [make_uplink(path, [pattern], self._hearer(at)) for at, path in enumerate(paths)]

    @property
    def paths(self) -> Mapping[str, str]:
        """Path to its problem, "" where it is connected."""
        return {uplink.name: "" if uplink.connected else uplink.problem or "not connected" for uplink in self._uplinks}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for uplink in self._uplinks:
                tasks.create_task(uplink.run())
            for part in (self._keep_writing(), self._keep_sending()):
                tasks.create_task(part)

    # --- Up -----------------------------------------------------------------------------------------------------------

    def _hearer(self, path: int) -> Callable[[Place, bytes], None]:
        return lambda place, frame: self.on_frame(path, place, frame)

    def on_frame(self, path: int, place: Place, frame: bytes) -> None:
        """A frame came by a path: bytes from anybody."""
        gate = self.gates.get(place.swarm)
        if gate is None or place.way is not Way.UP:
            self.counts["unpinned"] += 1
            if gate is None and place.way is Way.UP:
                self._name(place.swarm, _UNPINNED.format(place.swarm.hex()))
            return
        of_one = self._gathered_of.get(gate.key, 0)
        most = GATHERED_OF_ONE if len(self._gathered) < GATHERED_MAX else max(1, GATHERED_MAX // len(self.gates))
        if of_one >= min(most, GATHERED_OF_ONE):
            self.counts["dropped"] += 1
            return
        unopened = gate.counts.get("unopened", 0)
        heard = gate.hear(frame, time.monotonic_ns())
        if heard is None:
            if gate.counts.get("unopened", 0) > unopened:
                self._name(gate.key, _UNOPENED.format(gate.pin.name))
            return
        if isinstance(heard, int):
            line, now_s = self._lines[gate.key].get(place.gateway), time.monotonic()
            if line is not None and now_s - line.paused_s >= PAUSE_AGAIN_S:
                line.paused_s = now_s
                self._answer(gate, place.gateway, line, Down(bytes(EPOCH_BYTES), pause_ms=heard))
            return
        self.counts["frames"] += 1
        self._gathered.append((path, gate, heard))
        self._gathered_of[gate.key] = of_one + 1
        self._is_gathering.set()

    def _name(self, swarm: bytes, words: str) -> None:
        """Say once of a swarm why what comes in its name is nothing here."""
        if swarm not in self._named and len(self._named) < NAMED_MAX:
            self._named.add(swarm)
            self._say(words)

    async def _keep_writing(self) -> None:
        while True:
            await self._is_gathering.wait()
            await asyncio.sleep(GATHER_S)
            self._is_gathering.clear()
            try:
                self.write()
            except Exception as error:
                # What was not written is not acknowledged, and comes again.
                self._say(f"the region's file takes nothing: {error}; make room on that disk")
                await asyncio.sleep(1.0)

    def write(self) -> None:
        """Write down what the gathered frames say, then acknowledge it."""
        gathered, self._gathered = self._gathered, []
        self._above.clear()
        self._missed.clear()
        self._gathered_of.clear()
        now_ms, now_s = round(time.time() * 1000), time.monotonic()
        fresh: dict[bytes, dict[NodeId, list[bytes]]] = {}
        spoken = {gate.key for _, gate, _ in gathered}
        try:
            with self._store.transaction():
                for _, gate, heard in gathered:
                    if not heard.is_certified:
                        self._add_trust(gate, heard)
                    elif not heard.is_past:
                        fresh.setdefault(gate.key, {}).setdefault(heard.gateway, []).extend(
                            self._write_apart(gate, heard, now_ms)
                        )
                self._judge_seers()
        except BaseException:
            # A gate has taken its statements: said again they are no news to it, so the next turn writes all of them.
            self._unkept |= spoken
            self._judging.restart(key.hex() for key in self.gates)
            raise
        self._unkept -= {gate.key for _, gate, heard in gathered if not heard.is_past}
        self._look_down()
        for path, gate, heard in gathered:
            self._hear(path, gate, heard, now_s)
        for key, by in fresh.items():
            self._spread(self.gates[key], by, now_s)
        for path, gate, heard in gathered:
            self._acknowledge(path, gate, heard)
            if heard.refused and heard.is_certified:
                self._tell_refused(gate, heard, now_s)

    def _tell_refused(self, gate: Gate, heard: Heard, now_s: float) -> None:
        """Say whose rows do not hold, and why: where a clock is wrong, nothing else shows it here."""
        if now_s - self._refused_s.get(gate.key, float("-inf")) >= REFUSED_AGAIN_S:
            self._refused_s[gate.key] = now_s
            held = gate.trust.certified(heard.gateway)
            name = f"{heard.gateway.hex()[:16]}" if held is None else f"{held.name} ({heard.gateway.hex()[:16]})"
            more = f", and {len(heard.refused) - 1} more of its frame" if len(heard.refused) > 1 else ""
            self._say(f"{gate.pin.name}: a row of its gateway {name} is refused: {heard.refused[0][1]}{more}")

    def _write_apart(self, gate: Gate, heard: Heard, now_ms: int) -> list[bytes]:
        """One frame's rows, as `_write_one`; where one cannot be written, it is refused and the others are written."""
        try:
            with self._store.part():
                return self._write_one(gate, heard, now_ms)
        except Exception as error:
            if not is_of_the_row(error):
                raise
        taken, news = heard.taken, []
        heard.taken = []
        for row in taken:
            one = replace(heard, taken=[row], refused=[])
            try:
                with self._store.part():
                    news += self._write_one(gate, one, now_ms)
            except Exception as error:
                if not is_of_the_row(error):
                    raise
                heard.refused.append((row[0], f"it cannot be written: {error}"[:96]))
                self._say(f"{gate.pin.name}: a row cannot be written: {error}; its gateway is told, and others go on")
            else:
                heard.taken.append(row)
        return news

    def _write_one(self, gate: Gate, heard: Heard, now_ms: int) -> list[bytes]:
        """One frame's rows; returns the objects that are news. Inside a transaction."""
        store, swarm, news = self._store, gate.key.hex(), []
        for _, taken in heard.taken:
            self.counts["rows"] += 1
            match taken:
                case Derived():
                    if store.put_object(swarm, taken, heard.gateway, gate.pin.confirm_observers, now_ms):
                        news.append(taken.object_id)
                    else:
                        self._above.setdefault((gate.key, heard.gateway), set()).add(taken.object_id)
                case RecordRow():
                    store.put_record(swarm, taken)
                case Report():
                    store.put_report(swarm, taken)
                case SiteRow():
                    store.put_site(swarm, heard.gateway, taken, now_ms)
                case TrustTaken():
                    pass
        self._add_trust(gate, heard)
        if heard.gateway not in self._lines[gate.key] and (gate.key, heard.gateway) not in self._missed:
            self._missed[gate.key, heard.gateway] = missed(store, swarm, heard.gateway)
        store.keep_life(swarm, heard.gateway, *max((heard.life, -1), gate.last_of(heard.gateway)))
        store.heard(swarm, heard.gateway, heard.up.dropped, now_ms)
        self.counts["refused"] += len(heard.refused)
        return news

    def _add_trust(self, gate: Gate, heard: Heard) -> None:
        """What it says of trust, also of a key that nobody vouches for. Inside a transaction."""
        if gate.key in self._unkept:
            self._keep_trust(gate)
        for _, taken in heard.taken:
            if isinstance(taken, TrustTaken):
                # What it replaces goes with the next tidy: a swarm that says one after the other costs no more.
                add_trust(self._store, gate.key.hex(), taken.kind, taken.statement)
                self._told.add(gate.key)
        if any(isinstance(taken, TrustTaken) and taken.kind in ("root", "revoke") for _, taken in heard.taken):
            self._judging.begin(gate.key.hex())

    def _keep_trust(self, gate: Gate) -> None:
        """Exactly what counts; who is out by it is judged next. Inside a transaction."""
        self._store.keep_trust(gate.key.hex(), [one for one in gate.trust.journalled() if one[0] != "group"])
        self._judging.begin(gate.key.hex())

    def _judge_seers(self) -> None:
        """Go on with who is out. Inside a transaction."""
        self._store.shut_out(self._judging, lambda key: self.gates[bytes.fromhex(key)].trust.revoked)

    def _hear(self, path: int, gate: Gate, heard: Heard, now_s: float) -> None:
        if heard.is_past:
            return
        lines = self._lines[gate.key]
        line = lines.get(heard.gateway)
        if line is None:
            if not heard.is_certified:
                return
            line = lines[heard.gateway] = Line(heard.public_key, path, now_s)
            line.learn(self._missed.pop((gate.key, heard.gateway), ()))
        line.path, line.heard_s = path, now_s
        self._take_have(line, heard)

    def _take_have(self, line: Line, heard: Heard) -> None:
        """Up to where it has the log; or a life that was this region's before its clock or its file was set back."""
        have = heard.up.have
        if have.log != LIFE_HEARD:
            line.log, line.have = have.log, have.seq
        elif have.seq > max(line.life, self._life):
            line.life = min(have.seq + 1, NUMBER_MAX)

    def _spread(self, gate: Gate, by: Mapping[NodeId, Sequence[bytes]], now_s: float) -> None:
        """Tell each gateway of a swarm what the others brought."""
        others = [(gateway, line) for gateway, line in self._lines[gate.key].items() if now_s - line.heard_s < LIVE_S]
        if len(others) < 2:
            return
        for author, objects in by.items():
            known = self._store.known(gate.key.hex(), objects)
            for gateway, line in others:
                if gateway != author:
                    line.learn(known)

    def _acknowledge(self, path: int, gate: Gate, heard: Heard) -> None:
        line = self._lines[gate.key].get(heard.gateway)
        if line is None:
            # A key without a certificate is asked for one; it has no place of its own yet.
            line = Line(heard.public_key, path, 0.0)
            self._take_have(line, heard)
        elif heard.is_past:
            line = replace(line, path=path)
        done = {seq for seq, _ in heard.taken} | {seq for seq, _ in heard.refused} | set(heard.known_before)
        life = gate.life_of(heard.gateway)
        # With the acknowledgement itself, or who said less would take its own word for what the region shows.
        less = self._above.get((gate.key, heard.gateway), set())
        said = [one.object_id for _, one in heard.taken if isinstance(one, Derived) and one.object_id in less]
        self._answer(
            gate,
            heard.gateway,
            line,
            Down(
                heard.up.epoch,
                ranges(sorted(done)),
                tuple(heard.refused[:ROWS_MAX]),
                tuple(heard.wanted[:WANTED_MAX]),
                life=life if life > heard.life else 0,
            ),
            self._store.known(gate.key.hex(), said),
        )

    # --- Down ---------------------------------------------------------------------------------------------------------

    async def _keep_sending(self) -> None:
        problems: Mapping[str, str] = {}
        tidy_s = time.monotonic()
        while True:
            now_s = time.monotonic()
            problems = self._tell_paths(problems)
            self._look_down()
            for key, lines in self._lines.items():
                for gateway, line in lines.items():
                    if now_s - line.heard_s < LIVE_S and (line.known or line.down_seen < self._down_seen):
                        line.down_seen = self._down_seen
                        self._answer(self.gates[key], gateway, line, Down(bytes(EPOCH_BYTES)))
            if now_s - tidy_s >= TIDY_S:
                tidy_s = now_s
                self.tidy(now_s)
            if self._judging:
                self._judge_on()
            await asyncio.sleep(0.25)

    def _judge_on(self) -> None:
        try:
            with self._store.transaction():
                self._judge_seers()
        except sqlite3.Error:
            # It is said where something is written.
            self._judging.restart(key.hex() for key in self.gates)

    def _tell_paths(self, told: Mapping[str, str]) -> Mapping[str, str]:
        """Say what became of each path since the problems that were told, also that one is well."""
        paths = self.paths
        for name, problem in paths.items():
            if problem != told.get(name, ""):
                self._say(problem or f"{name}: connected")
        return paths

    def tidy(self, now_s: float) -> None:
        """Keep the bounds of what is remembered, in memory and on the disk."""
        # A swarm has as many gateways as its officers certify: who is silent is forgotten until it speaks.
        for key, lines in self._lines.items():
            self._lines[key] = {node: line for node, line in lines.items() if now_s - line.heard_s < LIVE_S}
        try:
            with self._store.transaction():
                for key in sorted(self._told):
                    self._keep_trust(self.gates[key])
                self._judge_seers()
            self._told.clear()
            self._marks.say([key for key, lines in self._lines.items() if lines], now_s)
            gone = self._store.tidy()
        except sqlite3.Error as error:
            self._say(f"the region's file takes nothing: {error}; make room on that disk")
            return
        if gone:
            self._say(f"{gone} words of history were dropped before they were exported: swarmd region export")

    def _answer(self, gate: Gate, gateway: NodeId, line: Line, down: Down, stands: Iterable[Known] = ()) -> None:
        """Send an answer, and with it what stands of what it answers, and what else there is for this gateway."""
        # A key that is no gateway's, or no more, is asked for certificates and told nothing else.
        is_gateway = gate.is_gateway(line.public_key)
        if not is_gateway:
            line.known.clear()
        known = tuple({**{one.object_id: one for one in stands}, **line.known}.values())[:KNOWN_MAX]
        # The largest row beside all that may be refused fits no frame: it goes with the next answer.
        rows = self._rows_for(gate, line) if is_gateway and not down.refused else []
        full = Down(
            down.epoch,
            down.acked,
            down.refused,
            down.wanted,
            down.pause_ms,
            down.life,
            known,
            self._marks.name_for(line.log, line.have) if is_gateway else self._store.log,
            tuple(rows),
        )
        frame = gate.pair(line.public_key).seal(
            Way.DOWN, gate.key, max(line.life, self._life), self._number, os.urandom(SALT_BYTES), full
        )
        self._number += 1
        place = Place(gate.key, Way.DOWN, gateway)
        order = [line.path, *(at for at in range(len(self._uplinks)) if at != line.path)]
        if any(self._uplinks[at].send(place, frame) for at in order):
            self.counts["answers"] += 1
            for one in known:
                line.known.pop(one.object_id, None)

    def _look_down(self) -> None:
        """What there is for each swarm: another process puts it there."""
        count = self._store.down_count()
        if count != self._down_seen:
            self._down_seen, self._newest = count, newest_down(self._store)

    def _rows_for(self, gate: Gate, line: Line) -> list[DownRow]:
        rows: list[DownRow] = []
        size = 0
        have = line.have if line.log == self._store.log else 0
        newest, now_s = self._newest.get(gate.key.hex(), 0), time.monotonic()
        allowance = self._down[gate.key]
        is_news = have > line.rows_sent[0] or newest > line.rows_sent[1]
        is_news = is_news and not allowance.pause_ms(time.monotonic_ns())
        if have >= newest or not (is_news or now_s - line.rows_s >= ROWS_AGAIN_S):
            return rows
        line.rows_sent, line.rows_s = (have, newest), now_s
        for row in self._store.down(gate.key.hex(), have, ROWS_MAX):
            size += len(row.body)
            if rows and size > FRAME_FILL_BYTES:
                break
            rows.append(row)
        if is_news:
            allowance.spend(sum(len(row.body) for row in rows))
        return rows
