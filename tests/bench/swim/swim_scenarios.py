"""What is done to a swarm, and what is measured: one function a scenario, plain numbers out."""

import math
import random
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.bench.swim.swim_agents import Swarm
from tests.bench.swim.swim_host import Rules, sample, usage

Result = dict[str, Any]


@dataclass
class Run:
    """One kind of agents, N of them, through all scenarios."""

    swarm: Swarm
    count: int
    rng: random.Random
    trials: dict[str, int]
    seconds: dict[str, float]
    rules: Rules = field(default_factory=Rules)

    def pairs(self, observers: list[int], subjects: list[int]) -> set[tuple[int, str]]:
        """All (observer, subject's name) pairs but those of an agent with itself."""
        return {(o, f"n{s}") for o in observers for s in subjects if o != s}

    def victim(self) -> int:
        """Any agent but the seed."""
        return self.rng.choice([index for index in self.swarm.alive if index != 0])

    def start_all(self, seeds: Callable[[int], int | None]) -> float:
        """Start every agent; the time before the first start."""
        before = time.monotonic()
        for index in range(self.count):
            self.swarm.start(index, seeds(index))
        return before


def spread(values: list[float]) -> Result:
    """Count, median, 99th percentile (the largest below a hundred trials), extremes."""
    if not values:
        return {"trials": 0}
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)]
    return {
        "trials": len(ordered),
        "p50": round(statistics.median(ordered), 3),
        "p99": round(p99, 3),
        "min": round(ordered[0], 3),
        "max": round(ordered[-1], 3),
    }


def form(run: Run) -> Result:
    """From a started seed to everybody listing everybody, and from the last agent's own `up`; what it cost each."""
    swarm, mark = run.swarm, run.swarm.mark()
    everyone = list(range(run.count))
    swarm.start(0, None)
    if not swarm.wait(mark, {"up", "join"}, {(0, "n0")}, 30):
        return {"missing_pairs": run.count * (run.count - 1)}
    time.sleep(0.3)
    first, before = time.monotonic(), sample([])
    for index in everyone[1:]:
        swarm.start(index, 0)
    wanted = run.pairs(everyone, everyone)
    found = swarm.wait(mark, {"join"}, wanted, run.seconds["form"])
    ups = [report.at_s for report in swarm.since(mark) if report.kind == "up"]
    last_up = max(ups) if len(ups) >= run.count else None
    done = max(found.values()) if len(found) == len(wanted) else None
    after = sample(swarm.pids)
    return {
        "missing_pairs": len(wanted) - len(found),
        "cpu_s_mean": round(sum(after.cpu_s.values()) / run.count, 3),
        "packets_mean": round((after.loopback_packets - before.loopback_packets) / run.count, 1),
        "bytes_mean": round((after.loopback_bytes - before.loopback_bytes) / run.count),
        "from_first_spawn_s": round(done - first, 3) if done else None,
        "from_last_up_s": round(max(0.0, done - last_up), 3) if done and last_up else None,
        "spawn_to_last_up_s": round(last_up - first, 3) if last_up else None,
    }


def steady(run: Run) -> Result:
    """Traffic, CPU and memory while nothing happens."""
    time.sleep(run.seconds["settle"])
    mark, before = run.swarm.mark(), sample(run.swarm.pids)
    time.sleep(run.seconds["window"])
    return {**usage(before, run.swarm.pids), **_wrong(run, mark, set())}


def event(run: Run) -> Result:
    """A user event from anybody; the clock starts at its origin's own delivery."""
    last, each, missing, sent = [], [], 0, 0
    for number in range(run.trials["event"]):
        origin = run.rng.choice(run.swarm.alive)
        name = f"e{number}-{run.rng.getrandbits(32):08x}"
        mark = run.swarm.mark()
        run.swarm.kind.send_event(run.swarm.processes[origin], origin, name)
        found = run.swarm.wait(mark, {"user"}, {(o, name) for o in run.swarm.alive}, 10)
        sent += len(run.swarm.alive)
        missing += len(run.swarm.alive) - len(found)
        begun = found.get((origin, name))
        if begun is not None:
            delays = [at - begun for (observer, _), at in found.items() if observer != origin]
            each += delays
            if len(found) == len(run.swarm.alive):
                last.append(max(delays, default=0.0))
        time.sleep(0.3)
    return {"to_last_s": spread(last), "to_each_s": spread(each), "pairs": sent, "missing_pairs": missing}


def kill(run: Run) -> Result:
    """SIGKILL: the host's kernel lives and refuses. Then the agent is restarted."""
    known, back, missing, wrong = [], [], 0, 0
    for _ in range(run.trials["kill"]):
        victim, mark = run.victim(), run.swarm.mark()
        began = run.swarm.kill(victim)
        wanted = run.pairs(run.swarm.alive, [victim])
        found = run.swarm.wait(mark, {"failed"}, wanted, 60)
        missing += len(wanted) - len(found)
        wrong += _wrong(run, mark, {victim})["false_failed"]
        if len(found) == len(wanted):
            known.append(max(found.values()) - began)
        back += _restart(run, victim)
        time.sleep(run.rng.uniform(0.5, 1.5))
    return {"all_know_s": spread(known), "back_at_all_s": spread(back), "never_learned": missing, "false_failed": wrong}


def blackout(run: Run) -> Result:
    """Every packet from and to one agent is lost, in silence. Then the link is back."""
    known, healed, missing = [], [], 0
    for _ in range(run.trials["blackout"]):
        victim, mark = run.victim(), run.swarm.mark()
        began = time.monotonic()
        run.rules.black_out(victim, run.count)
        others = [index for index in run.swarm.alive if index != victim]
        found = run.swarm.wait(mark, {"failed"}, run.pairs(others, [victim]), 60)
        missing += len(others) - len(found)
        if len(found) == len(others):
            known.append(max(found.values()) - began)
        mark, began = run.swarm.mark(), time.monotonic()
        run.rules.set([])
        back = run.swarm.wait(mark, {"join"}, set(found), 60)
        if back and len(back) == len(found):
            healed.append(max(back.values()) - began)
        time.sleep(run.rng.uniform(2.0, 3.0))
    return {"all_know_s": spread(known), "back_at_all_s": spread(healed), "never_learned": missing}


def _loss(run: Run, percent: int) -> Result:
    run.rules.lose(percent)
    try:
        time.sleep(2)
        mark, before = run.swarm.mark(), sample(run.swarm.pids)
        time.sleep(run.seconds["loss"])
        result = {**usage(before, run.swarm.pids), **_wrong(run, mark, set())}
        result["agent_hours"] = round(run.count * run.seconds["loss"] / 3_600, 3)
        return result
    finally:
        run.rules.set([])
        time.sleep(3)


def loss10(run: Run) -> Result:
    """A tenth of all packets lost."""
    return _loss(run, 10)


def loss30(run: Run) -> Result:
    """A third of all packets lost, nearly."""
    return _loss(run, 30)


def _freeze(run: Run, frozen_s: float, running_s: float, cycles: int) -> Result:
    count = min(4, run.count // 2)
    victims = sorted(run.rng.sample([index for index in run.swarm.alive if index != 0], count))
    others = [index for index in run.swarm.alive if index not in victims]
    mark, back = run.swarm.mark(), []
    for _ in range(cycles):
        run.swarm.signal(victims, signal.SIGSTOP)
        time.sleep(frozen_s)
        thaw = run.swarm.mark()
        stale = {pair for pair, state in run.swarm.states().items() if state in ("failed", "degraded", "suspect")}
        run.swarm.signal(victims, signal.SIGCONT)
        began = time.monotonic()
        wanted = {pair for pair in run.pairs(others, victims) if pair in stale}
        found = run.swarm.wait(thaw, {"join"}, wanted, running_s)
        if wanted:
            back.append(max(found.values()) - began if len(found) == len(wanted) else running_s)
        time.sleep(max(0.0, running_s - (time.monotonic() - began)))
    return {"frozen": count, **_wrong(run, mark, set(victims)), "back_at_all_s": spread(back)}


def freeze5(run: Run) -> Result:
    """Four agents stopped for 5 s, again and again."""
    return _freeze(run, 5, 5, run.trials["freeze"])


def freeze16(run: Run) -> Result:
    """Four agents stopped for 16 s, again and again."""
    return _freeze(run, 16, 8, max(1, run.trials["freeze"] // 2))


def partition(run: Run) -> Result:
    """Two halves cut from each other; then the time until everybody lists everybody again."""
    alive = run.swarm.alive
    left, right = alive[: len(alive) // 2], alive[len(alive) // 2 :]
    across = run.pairs(left, right) | run.pairs(right, left)
    mark, began = run.swarm.mark(), time.monotonic()
    run.rules.cut(left, right, run.count)
    lost = run.swarm.wait(mark, {"failed"}, across, run.seconds["partition"])
    agreed = max(lost.values()) - began if len(lost) == len(across) else None
    time.sleep(max(0.0, run.seconds["partition"] - (time.monotonic() - began)))
    stale = {pair for pair, state in run.swarm.states().items() if pair in across and state != "join"}
    mark, began = run.swarm.mark(), time.monotonic()
    run.rules.set([])
    healed = run.swarm.wait(mark, {"join"}, stale, 120)
    complete = len(healed) == len(stale)
    time.sleep(2)
    return {
        "cut_pairs": len(across),
        "declared": len(lost),
        "all_declared_s": round(agreed, 2) if agreed else None,
        "healed_s": round(max(healed.values()) - began, 3) if complete and healed else None,
        "unhealed_pairs": len(stale) - len(healed),
    }


def restart(run: Run) -> Result:
    """Everybody killed at once and started again in another order, with what their disks remember."""
    order = run.swarm.alive
    run.rng.shuffle(order)
    began = time.monotonic()
    for index in order:
        run.swarm.kill(index)
    killed = time.monotonic()
    run.rng.shuffle(order)
    mark = run.swarm.mark()
    for index in order:
        run.swarm.start(index, 0 if index else order[0] or order[1])
    wanted = run.pairs(order, order)
    found = run.swarm.wait(mark, {"join"}, wanted, run.seconds["form"])
    ups = [report.at_s for report in run.swarm.since(mark) if report.kind == "up"]
    done = max(found.values()) if len(found) == len(wanted) else None
    return {
        "killed_within_s": round(killed - began, 2),
        "spawn_to_last_up_s": round(max(ups) - killed, 2) if len(ups) >= len(order) else None,
        "from_last_up_s": round(max(0.0, done - max(ups)), 3) if done and ups else None,
        "from_first_spawn_s": round(done - killed, 3) if done else None,
        "missing_pairs": len(wanted) - len(found),
    }


SCENARIOS: dict[str, Callable[[Run], Result]] = {
    "form": form,
    "steady": steady,
    "event": event,
    "kill": kill,
    "blackout": blackout,
    "loss10": loss10,
    "loss30": loss30,
    "freeze5": freeze5,
    "freeze16": freeze16,
    "partition": partition,
    "restart": restart,
}


def _wrong(run: Run, mark: int, abnormal: set[int]) -> Result:
    """Verdicts about healthy agents at healthy agents, and about the abnormal ones."""
    names = {f"n{index}" for index in abnormal}
    said = run.swarm.since(mark)
    failed = [report for report in said if report.kind == "failed"]
    return {
        "suspicions": sum(report.kind == "suspect" for report in said),
        "false_failed": sum(r.subject not in names and r.observer not in abnormal for r in failed),
        "false_failed_anywhere": sum(r.subject not in names for r in failed),
        "abnormal_failed": sum(r.subject in names and r.observer not in abnormal for r in failed),
        "abnormal_degraded": sum(r.kind == "degraded" and r.subject in names for r in said),
    }


def _restart(run: Run, victim: int) -> list[float]:
    mark = run.swarm.mark()
    others = run.swarm.alive
    began = run.swarm.start(victim, 0)
    found = run.swarm.wait(mark, {"join"}, run.pairs(others, [victim]), 40)
    return [max(found.values()) - began] if len(found) == len(others) else []
