"""Learning in the swarm, simulated: the daemon's own `Learning` on every node, real rows of drawn modules, and liars.

The same swarm runs twice, with the same rows: once with honest members alone, and once with bad ones beside them that
have rows too. Held against both are a head trained on all rows in one place, a federated average through an observer
with the same members, and each device for itself.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import numpy as np

from swarmd_models.head_rows import F64, accuracy, one_hot, trained
from swarmd_protocols.effects import Effect, Order, StateChanged, TimerKey
from swarmd_protocols.errors import WireError
from swarmd_protocols.ids import NodeId
from swarmd_protocols.learning.form import UNIT_BITS, Session, open_delta, sign_delta
from swarmd_protocols.learning.learning import Learning, LearningConfig
from swarmd_protocols.learning.merging import Merger
from swarmd_protocols.learning.messages import Give, decode, encode
from swarmd_protocols.learning.privacy import Privacy
from swarmd_protocols.learning.requests import JOURNAL, NAME, HeadMerged, Learn, Train, Trained
from swarmd_protocols.state.crdt.batch import NodeSigner
from swarmd_protocols.state.replica import Replica
from swarmd_protocols.subprotocol import Send, SubEffect, SubProtocol
from swarmd_protocols.trust.trust import Trust
from swarmd_sim.run.choices import Choices
from swarmd_sim.run.head_training import central, federated
from swarmd_sim.run.host import Host
from swarmd_sim.run.node_factory import NodeFactory
from swarmd_sim.run.result import Result, Times
from swarmd_sim.run.scenario import NS_PER_S
from swarmd_sim.run.sections import Scenario
from swarmd_sim.run.simulation import Options, Simulation
from swarmd_sim.run.watch import Watch
from swarmd_sim.world.learning_rows import base_digest, base_head, dealt, drawn_rows

_CONTRAST = 0.45
"""Of the site's camera, beside those that the detector knows: its own head names three quarters of the faults there."""
_SCALE = 20.0
"""How much louder a liar speaks."""
_NOTHING_ELSE = 5
"""The class that a liar names everything."""
_SHIFT = 3
"""How many classes on a liar's labels are."""
TRAINING_LIES = ("sign", "scaled", "same", "other")
WIRE_LIES = ("equivocate", "garbage")
MIXED = ("scaled", "same", "other", "equivocate", "sign", "garbage")


class Liar(Learning):
    """A member that says two things at once, or what is none."""

    lie = ""

    def on_command(self, request: object, now_ns: int) -> list[SubEffect]:
        """Its own words go out otherwise than it wrote them down."""
        return self._twisted(super().on_command(request, now_ns))

    def on_timer(self, key: TimerKey, now_ns: int) -> list[SubEffect]:
        """Likewise those that waited."""
        return self._twisted(super().on_timer(key, now_ns))

    def _twisted(self, effects: Sequence[SubEffect]) -> list[SubEffect]:
        found: list[SubEffect] = []
        for number, effect in enumerate(effects):
            if isinstance(effect, Send):
                effect = Send(effect.to, self._lie(effect.payload, number), effect.reliable, effect.priority)
            found.append(effect)
        return found

    def _lie(self, payload: bytes, number: int) -> bytes:
        if self.lie == "garbage":
            return payload[:40] + bytes(255 - one for one in payload[40:])
        try:
            message = decode(payload)
        except WireError:
            return payload
        if not isinstance(message, Give) or number % 2:
            return payload
        one = open_delta(message.deltas[0])
        turned = [(index, -value) for index, value in zip(one.indices, one.values, strict=True)]
        other = sign_delta(self._node, one.session, one.round, one.rows, one.exponent, turned, self._signer)
        return encode(Give((other.raw, *message.deltas[1:])))


class Labels:
    """Who has which rows, and what each makes of a head.

    Args:
        scenario: `[learning]`.
        seed: Of the run.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        section = self.section = scenario.learning
        self.base = base_head()
        self.taught = drawn_rows(section.seed, section.scenes, _CONTRAST)
        self.held = drawn_rows(section.seed + 1, section.scenes // 3, _CONTRAST)
        self.replay = drawn_rows(section.seed + 2, section.scenes // 6, 1.0)
        rng = np.random.default_rng([seed, section.seed])
        self.rows = dealt(self.taught, section.labelled, section.alpha, rng)
        # Liars have rows of the same site, so that what they take away is not their rows but what they say.
        size = max(1, len(self.taught.labels) // section.labelled)
        self.rows += [
            self.taught.part(rng.choice(len(self.taught.labels), size, replace=False)) for _ in range(section.bad)
        ]
        lies = MIXED if section.lie == "mixed" else (section.lie,)
        self.lies = [lies[at % len(lies)] for at in range(section.bad)]

    @property
    def session(self) -> Session:
        """Of the whole swarm."""
        dim = self.base.size
        return Session(base_digest(), dim, max(1, round(dim * self.section.share)), self.section.rounds)

    def change(self, index: int, head: F64) -> F64:
        """What a member says its rows would make of a head."""
        rows, classes = self.rows[index], len(self.base)
        at = index - self.section.labelled
        lie = self.lies[at] if at >= 0 else ""
        labels = rows.labels
        if lie == "same":
            labels = np.full_like(labels, _NOTHING_ELSE)
        elif lie == "other":
            labels = (labels + _SHIFT) % classes
        is_honest = lie in ("", "sign", "scaled", *WIRE_LIES)
        found = trained(head, rows, one_hot(labels, classes), self.replay if is_honest else None) - head
        return -found if lie == "sign" else -_SCALE * found if lie == "scaled" else found

    def head_of(self, moved: Sequence[int]) -> F64:
        """A head as the protocol says it."""
        return self.base + np.array(moved, np.float64).reshape(self.base.shape) / (1 << UNIT_BITS)


class LearningWorld:
    """What daemons do beside the protocol: train when asked, and remember what was merged."""

    def __init__(self, labels: Labels, bad: int) -> None:
        self.labels = labels
        self.members = labels.section.labelled + bad
        self.merger = Merger(kept=48)
        self.protocols: dict[int, Learning] = {}
        self.heads: dict[int, HeadMerged] = {}
        """The last that was merged, by host."""
        self.rounds: Counter[int] = Counter()
        self._changes: dict[tuple[int, bytes], F64] = {}

    def on_order(self, host: Host, request: object) -> None:
        """Train on own rows; members without any say so."""
        assert isinstance(request, Train)
        rows = 0 if host.index >= self.members else len(self.labels.rows[host.index].labels)
        change: Sequence[float] = ()
        if rows:
            change = self.labels.change(host.index, self.labels.head_of(request.moved)).ravel().tolist()
        host.command(NAME, Trained(request.session.id, request.round, change, rows))

    def on_detail(self, host: Host, detail: object) -> None:
        """A round was merged."""
        if isinstance(detail, HeadMerged):
            self.heads[host.index] = detail
            self.rounds[detail.round] += 1


class Ear:
    """Hears what drivers hear, and hands on what is this protocol's."""

    def __init__(self, watch: Watch, world: LearningWorld) -> None:
        self._watch, self._world = watch, world
        self.on_event, self.on_crash, self.on_boot = watch.on_event, watch.on_crash, watch.on_boot

    def on_effect(self, host: Host, effect: Effect) -> None:
        """See `Observer`."""
        self._watch.on_effect(host, effect)
        if isinstance(effect, Order) and effect.subprotocol == NAME:
            self._world.on_order(host, effect.request)
        elif isinstance(effect, StateChanged) and effect.subprotocol == NAME:
            self._world.on_detail(host, effect.detail)


class LearningFactory(NodeFactory):
    """Builds nodes that learn."""

    def __init__(self, scenario: Scenario, choices: Choices, addresses: list[str], labels: Labels, bad: int) -> None:
        super().__init__(scenario, choices, addresses)
        self.learning = LearningWorld(labels, bad)
        section = scenario.learning
        privacy = Privacy(section.length, section.noise) if section.noise else None
        self._config = LearningConfig(round_ns=int(section.round_s * NS_PER_S), privacy=privacy)

    def more(self, host: Host, trust: Trust, replica: Replica, records: Mapping[bytes, bytes]) -> Sequence[SubProtocol]:
        """What the daemon has beside."""
        world = self.learning
        at = host.index - world.labels.section.labelled
        lie = world.labels.lies[at] if 0 <= at < world.members - world.labels.section.labelled else ""
        make = Liar if lie in WIRE_LIES else Learning
        host.hostile = bool(lie)
        kept = {key: value for key, value in records.items() if key.startswith(JOURNAL)}
        identity = self.identity(host)
        signer = NodeSigner(self._crypto, identity.seed)
        rng = Random(self._choices.choose("learning.noise", 1 << 30))
        made = make(NodeId(host.node_id), signer, trust, self._config, rng, kept, world.merger)
        if isinstance(made, Liar):
            made.lie = lie
        world.protocols[host.index] = made
        host.engine.at(host.engine.now_ns, lambda _: host.command(NAME, Learn(world.labels.session)), None)
        return [made]


class LearningSwarm:
    """Both runs, and what they are held against.

    Args:
        scenario: `[learning]` says who has labels and who lies.
        seed: Decides everything.
        options: How runs are driven and watched.
    """

    def __init__(self, scenario: Scenario, seed: int, options: Options) -> None:
        self._scenario, self._seed, self._options = scenario, seed, options
        self._labels = Labels(scenario, seed)

    def run(self) -> Result:
        """Run and judge."""
        bad = self._scenario.learning.bad
        quiet = replace(self._options, progress=None)
        honest, run = self._one(0, quiet if bad else self._options)
        beside = honest
        if bad:
            beside, run = self._one(bad, self._options)
        figures = self._figures(honest, beside)
        violate = run.watch.violate
        section = self._scenario.learning
        if not honest["one_head"] or not beside["one_head"]:
            violate("learning.one_head", "members hold different heads at the end")
        if section.judged:
            self._judge(figures, violate)
        result = run.result(self._times)
        result.figures["learning"] = figures
        return result

    def _one(self, bad: int, options: Options) -> tuple[dict[str, float], Simulation]:
        def make(scenario: Scenario, choices: Choices, addresses: list[str]) -> LearningFactory:
            return LearningFactory(scenario, choices, addresses, self._labels, bad)

        run = Simulation(self._scenario, self._seed, replace(options, maker=make))
        assert isinstance(run.maker, LearningFactory)
        world = run.maker.learning
        for host in run.hosts:
            host._observer = Ear(run.watch, world)
        started, cpu_started = time.perf_counter(), time.process_time()
        run.run()
        self._times = Times(run.setup_s, time.perf_counter() - started + run.setup_s, time.process_time() - cpu_started)
        labels, hosts = self._labels, run.hosts
        honest = [one.index for one in hosts if not one.hostile]
        ends = [world.heads[index] for index in honest if index in world.heads]
        rounds = labels.section.rounds
        is_one = len(ends) == len(honest) and len({(end.round, tuple(end.moved)) for end in ends}) == 1
        head = labels.head_of(ends[0].moved) if ends else labels.base
        views = [world.protocols[index].view() for index in honest]
        return {
            "accuracy": accuracy(head, labels.held),
            "one_head": is_one and ends[0].round == rounds,
            "bytes": sum(view.counts["sent_bytes"] for view in views),
            "deltas": sum(views[0].deltas),
            "liars": len(views[0].liars),
            "named": run.watch.alarms.get("learning-liar", 0) + run.watch.alarms.get("learning-garbage", 0),
            "epsilon": views[0].epsilon or 0.0,
        }, run

    def _figures(self, honest: dict[str, float], beside: dict[str, float]) -> dict[str, object]:
        labels, section = self._labels, self._scenario.learning
        nodes, dim, rounds = self._scenario.swarm.nodes, labels.base.size, section.rounds
        counts = [len(one.labels) for one in labels.rows]
        changes: list[Callable[[F64], F64]] = [partial(labels.change, at) for at in range(len(counts))]
        said = [at for at in range(section.labelled) if counts[at]]
        together = accuracy(central(labels.base, labels.taught, labels.replay), labels.held)
        average = federated(labels.base, [changes[at] for at in said], [counts[at] for at in said], rounds)
        # Liars that contradict themselves tell an observer one thing: there they lie as the loud ones do.
        fooled = federated(labels.base, changes, counts, rounds)
        alone = [self._alone(at) for at in said]
        dense = len(said) * (nodes - 1) * rounds * 4 * dim
        return {
            "rows": len(labels.taught.labels),
            "members_with_labels": len(said),
            "bad": section.bad,
            "lies": labels.lies,
            "weights": dim,
            "base": _digits(accuracy(labels.base, labels.held)),
            "central": _digits(together),
            "ours": _digits(honest["accuracy"]),
            "ours_with_bad": _digits(beside["accuracy"]),
            "federated": _digits(accuracy(average, labels.held)),
            "federated_with_bad": _digits(accuracy(fooled, labels.held)),
            "alone_mean": _digits(sum(alone) / len(alone)),
            "ours_of_central": _digits(honest["accuracy"] / together),
            "moved_points": _digits(100 * (honest["accuracy"] - beside["accuracy"])),
            "bytes": honest["bytes"],
            "dense_bytes": dense,
            "bytes_of_dense": _digits(honest["bytes"] / dense),
            "federated_bytes": (len(said) + nodes) * rounds * 4 * dim,
            "deltas": honest["deltas"],
            "liars_caught": beside["liars"],
            "alarms": beside["named"],
            "epsilon": _digits(honest["epsilon"]),
        }

    def _alone(self, at: int) -> float:
        labels = self._labels
        head = labels.base
        for _ in range(labels.section.rounds):
            head = head + labels.change(at, head)
        return accuracy(head, labels.held)

    def _judge(self, figures: Mapping[str, object], violate: Callable[[str, str], None]) -> None:
        bars = (("ours_of_central", 0.98, 1), ("bytes_of_dense", 0.10, -1), ("moved_points", 1.0, -1))
        for name, bar, way in bars:
            value = figures[name]
            assert isinstance(value, float)
            if (value - bar) * way < 0:
                violate(f"learning.{name}", f"{value}; the bar is {bar}")


def _digits(value: float) -> float:
    return round(float(value), 4)
