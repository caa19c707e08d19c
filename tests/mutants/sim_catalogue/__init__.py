"""Protocol bugs on purpose, by name: what `swarmd sim ... --mutant NAME` switches on and `swarmd sim mutants` hunts.

Each entry replaces one function of the protocols by a broken one for the length of one run. An entry whose target has
gone is an error, so the catalogue follows the code. The checkers are told nothing about any of them.
"""

from collections.abc import Mapping
from typing import Any

from .breaks import (
    any_role,
    any_signature,
    counters_lost,
    deaf_after_noise,
    dones_lost,
    endless_volumes,
    fails_at_once,
    first_time_only,
    gaps_skipped,
    gives,
    last_dropped,
    latest_arrival,
    latest_only,
    left_for_good,
    newest_only,
    no_removals,
    not_journalled,
    remove_whole_key,
    scaled,
    still_shown,
    trust_unwritten,
    twice,
    unhalted,
    unsigned_report,
    waits_unbounded,
    without_check,
    without_persist,
)
from .lending import LENDING
from .mutant import Mutant

QUIET: Mapping[str, Any] = {"faults.kinds": [], "faults.attacks": [], "release.chance": 0.0}
LONELY: Mapping[str, Any] = {
    "faults.kinds": ["partition", "mute", "send_error", "kill", "power_loss", "clock_step"],
    "faults.per_minute": 24,
    "workload.detections_per_min": 120,
    "workload.meta_per_min": 30,
    "drones.work": "none",
    "site.kind": "none",
    "site.extent_m": [2000.0, 2000.0],
    "release.chance": 0.0,
}
"""Nodes that are cut off and die alone: what only they know must be on their disks."""
DEATHS: Mapping[str, Any] = {"faults.kinds": ["power_loss", "kill", "loss"], "release.chance": 0.0}
RELEASES: Mapping[str, Any] = {"release.chance": 1.0, "faults.kinds": [], "faults.attacks": []}
"""Rules about the whole fleet need a fleet that is left alone for a while."""
THIEVES: Mapping[str, Any] = {"release.chance": 1.0, "faults.kinds": ["forge_release", "poison_delta"]}

SWIM: dict[str, Mutant] = {
    "swim-no-refute": Mutant("a suspect never answers", "swim.own_record:OwnRecord.refute", gives(None)),
    "swim-no-suspicion": Mutant(
        "nobody is ever suspected", "swim.prober:Prober._suspect", gives(None), overrides=DEATHS
    ),
    "swim-no-fail": Mutant(
        "suspects are never failed", "swim.membership:Membership.fail", gives(None), overrides=DEATHS
    ),
    "swim-no-rejoin": Mutant(
        "neither seeds nor lost members are ever called",
        "swim.swim:Swim._rejoin",
        gives(None),
        more=(("swim.swim:Swim._seek", gives(None)), ("swim.prober:Prober.ping_once", gives(None))),
    ),
    "swim-one-accuser": Mutant(
        "one member's word is enough to fail another",
        "swim.accusations:accusers_wanted",
        gives(1),
        overrides={"faults.kinds": ["accuse"], "release.chance": 0.0},
    ),
    "swim-no-hello": Mutant("first contact is never answered", "swim.swim:Swim.on_hello", gives(None)),
    "swim-no-records": Mutant(
        "records of third members are dropped", "swim.membership:Membership.on_record", gives(None)
    ),
    "swim-no-alive": Mutant("newer records are dropped", "swim.membership:Membership._merge", gives(None)),
    "swim-no-later-life": Mutant(
        "a later life is not told that it was known", "swim.own_record:OwnRecord.on_own_record", gives(None)
    ),
    "swim-no-repair": Mutant("differing digests start no repair", "swim.repair:Repair.sections_due", gives(False)),
    "swim-no-fingerprints": Mutant(
        "repair stops halfway", "swim.repair:Repair.on_fingerprints", gives(None), overrides=LONELY
    ),
    "swim-no-acks": Mutant(
        "acks and other signs of life are not taken",
        "swim.prober:Prober.on_ack",
        gives(None),
        more=(("swim.swim:Swim.on_frame", gives(None)),),
    ),
    "swim-fast-suspicion": Mutant(
        "one lost ping is enough, and there is no time to refute",
        "swim.prober:Prober._timeout_ns",
        gives(1),
        overrides={**QUIET, "radio.loss": 0.4},
        more=(("swim.prober:attempts_needed", gives(1)),),
    ),
    "swim-believes-silence": Mutant(
        "whoever does not answer one ping is failed at the next look",
        "swim.prober:Prober._silence_is_believable",
        fails_at_once,
        overrides={**QUIET, "radio.loss": 0.4},
        more=(("swim.prober:attempts_needed", gives(1)),),
    ),
    "swim-no-events": Mutant("user events are not taken", "swim.user_events:UserEvents.on_event", gives(None)),
    "swim-no-event-repair": Mutant("lost events are not repaired", "swim.repair:Repair.on_event_vector", gives(None)),
    "swim-said-once": Mutant("what nobody heard is not said again", "swim.event_unheard:Unheard.say", gives([])),
    "swim-events-twice": Mutant("events are delivered twice", "swim.event_log:EventLog.due", twice),
    "swim-leave-is-alive": Mutant(
        "a good-bye is sent as alive",
        "swim.own_record:OwnRecord.set_status",
        no_removals,
        overrides={"faults.kinds": ["leave", "away"], "faults.per_minute": 6, "release.chance": 0.0},
    ),
    "swim-one-probe": Mutant("probing stops after the first", "swim.prober:Prober._period", first_time_only),
    "wire-overfull": Mutant("datagrams are packed too full", "swim.sender:_FRAME_ROOM", lambda room: room + 300),
    "wire-no-summaries": Mutant("no digests of sub-protocols", "swim.sender:FrameSender.sections", gives(None)),
    "node-no-peers": Mutant("sub-protocols learn of no peer", "node:Node._tell_peers", gives(None)),
}

STATE: dict[str, Mutant] = {
    "state-no-publish": Mutant(
        "facts are not told and not compared",
        "state.anti_entropy:AntiEntropy.ask_sync",
        gives([]),
        overrides={"radio.loss": 0.3},
    ),
    "state-no-summary": Mutant("summaries start no repair", "state.replica:Replica.on_summary", gives([])),
    "state-no-answer": Mutant("questions are not answered", "state.anti_entropy:AntiEntropy.answer_have", gives([])),
    "state-compare-blind": Mutant("nobody ever lacks anything", "state.crdt.store:Store.compare", gives(([], [], []))),
    "state-no-batches": Mutant("batches are not taken", "state.intake:Intake.queue", gives(None)),
    "state-gaps-skipped": Mutant(
        "what lies before the newest batch is taken for held",
        "state.crdt.log:OriginLog._advance",
        gaps_skipped,
        overrides={"radio.loss": 0.25},
    ),
    "state-facts-not-persisted": Mutant(
        "own facts are not written", "state.author:Author.flush", without_persist, overrides=LONELY
    ),
    "state-journal-leaks": Mutant(
        "what is replaced stays on disk",
        "state.holdings:Holdings.drop",
        not_journalled,
        overrides={"state.slack_rows": 2, "workload.notes_per_min": 600},
    ),
    "state-records-not-persisted": Mutant("counters are not written", "state.author:Author._seal", without_persist),
    "state-no-restore": Mutant(
        "the journal is not read", "state.replica:Replica._restore", gives(None), overrides=LONELY
    ),
    "state-counters-restart": Mutant("counters start at nought", "state.author:Author.restore_records", counters_lost),
    "state-same-incarnation": Mutant("every life uses the same dots", "state.replica:_first_incarnation", gives(1)),
    "state-digest-blind": Mutant(
        "the digest never changes", "state.crdt.store:Store.lasting_digest", gives(bytes(16)), overrides=LONELY
    ),
    "state-after-skips": Mutant("repairs leave out the last batch", "state.crdt.log:OriginLog.after", last_dropped),
    "state-dones-lost": Mutant("done cells are not folded", "state.projection:Projection._take_latest", dones_lost),
    "state-no-facts": Mutant("others' facts are not folded", "state.projection:Projection._take_latest", gives(None)),
    "notes-remove-wins": Mutant(
        "a removal removes unseen puts too",
        "state.crdt.notes:NoteMap.remove",
        remove_whole_key,
        overrides={
            "workload.notes_per_min": 240,
            "faults.kinds": ["partition"],
            "faults.per_minute": 12,
            "release.chance": 0.0,
        },
    ),
    "dedup-latest-arrival": Mutant(
        "the row that arrives last wins",
        "state.dedup.view:DedupView.put",
        latest_arrival,
        overrides={"site.site_map": False},
    ),
    "dedup-no-resign": Mutant(
        "a leader that is outranked stays",
        "state.dedup.view:DedupView._push_below",
        gives(None),
        overrides={"site.site_map": False},
    ),
    "dedup-everything-near": Mutant(
        "any two things are one",
        "state.dedup.view:DedupView._distance",
        gives(0),
        overrides={
            **QUIET,
            "site.site_map": False,
            "site.faults": 0.2,
            "drones.speed_m_s": 3.0,
            "checks.distinct_lost": 0,
        },
    ),
    "claims-never-expire": Mutant(
        "a dead holder keeps its cell",
        "state.claims.config:ClaimConfig.observer_ns",
        gives(10**18),
        overrides={
            **QUIET,
            "swarm.seconds": 120,
            "checks.cells_done": True,
            "fault": [{"kind": "kill", "at_s": 5.0, "duration_s": 74.0, "nodes": [1, 2, 3, 4]}],
        },
    ),
    "claims-never-heard": Mutant(
        "others' claims are not heard",
        "state.claims.claims:Claims.hear",
        gives([]),
        overrides={**QUIET, "drones.speed_m_s": 0.5},
    ),
    "claims-never-yield": Mutant(
        "a loser works on",
        "state.claims.claims:Claims._must_yield",
        gives(False),
        overrides={"radio.loss": 0.3},
    ),
    "claims-no-choice": Mutant(
        "no cell is ever chosen",
        "state.claims.claims:Claims._choose",
        gives(None),
        overrides={**QUIET, "checks.cells_done": True},
    ),
    "claims-short-lease": Mutant(
        "observers free a cell at once",
        "state.claims.config:ClaimConfig.observer_ns",
        scaled(10),
        overrides={**QUIET, "drones.speed_m_s": 0.5},
    ),
}

RELEASE: dict[str, Mutant] = {
    "release-any-signature": Mutant(
        "signatures are not verified", "trust.roots:signers", any_signature, overrides=THIEVES
    ),
    "release-one-key": Mutant(
        "one key is enough where two must sign",
        "trust.roots:meets_threshold",
        lambda _sound: lambda good, _keys, _threshold: bool(set(good)),
        overrides=THIEVES,
    ),
    "release-any-role": Mutant(
        "any role of the fleet may sign anything", "trust.roots:role_of", any_role, overrides=THIEVES
    ),
    "release-reports-unsigned": Mutant(
        "anybody speaks for anybody",
        "releases.reports:admit_report",
        unsigned_report,
        overrides={
            "release.chance": 1.0,
            "release.bad_at_s": 0.0,
            "release.revoke_at_s": 0.0,
            "release.next_at_s": 0.0,
            "faults.kinds": ["forge_release"],
        },
    ),
    "release-chunks-unchecked": Mutant(
        "chunks are not hashed",
        "releases.swarming:BlobSwarm._is_chunk",
        gives(True),
        overrides={"release.chance": 1.0, "faults.kinds": ["poison_delta"], "faults.per_minute": 24},
    ),
    "release-no-floor": Mutant(
        "what is below the floor may run",
        "releases.versions:CHECKS",
        without_check("below_floor"),
        overrides={**RELEASES, "release.soak_s": 8, "release.revoke": "bad"},
    ),
    "release-no-revocation": Mutant(
        "what is revoked may run",
        "releases.versions:CHECKS",
        without_check("is_revoked"),
        overrides={**RELEASES, "release.revoke": "running", "release.next_at_s": 0.0},
    ),
    "release-halt-ignored": Mutant(
        "failed canaries stop nothing",
        "releases.rollout:standing",
        unhalted,
        overrides={**RELEASES, "release.turn_s": 8.0, "release.revoke_at_s": 0.0, "release.next_at_s": 0.0},
    ),
    "release-silence-promotes": Mutant(
        "a stage opens without a verdict", "releases.rollout:passes_needed", gives(0), overrides=RELEASES
    ),
    "release-all-canaries": Mutant(
        "everybody tries at once", "releases.rollout:may_try", gives(True), overrides=RELEASES
    ),
    "release-no-way-back": Mutant(
        "nobody leaves a bad release", "releases.policy:RolloutPolicy._go_back", gives([]), overrides=RELEASES
    ),
    "release-no-repair": Mutant(
        "differing summaries start no repair", "releases.exchange:Exchange.repair", gives([]), overrides=RELEASES
    ),
    "release-no-answer": Mutant(
        "questions about statements are not answered",
        "releases.exchange:Exchange.answer_have",
        gives([]),
        overrides=RELEASES,
    ),
    "release-no-lists": Mutant(
        "nobody asks for the list of chunks", "releases.fetching:Fetcher._ask_list", gives([]), overrides=RELEASES
    ),
}


def _attacked(*kinds: str, **overrides: Any) -> dict[str, Any]:
    wanted = {"faults.kinds": [], "faults.attacks": list(kinds), "faults.attacks_off": []}
    return {**wanted, "release.chance": 1.0, **overrides}


_STARTS = _attacked("short_answers", **{"release.chance": 0.0, "workload.user_events_per_min": 30})
LAW: dict[str, Mutant] = {
    "law-no-threshold": Mutant(
        "statements count without a signature",
        "trust.roots:meets_threshold",
        gives(True),
        overrides=_attacked("own_revocation", "own_group_key"),
    ),
    "law-removals-fall": Mutant(
        "a planned replacement of keys undoes what they removed",
        "trust.roots:RootChain.counts",
        newest_only,
        overrides=_attacked("replace_revoke"),
    ),
    "law-not-judged-anew": Mutant(
        "a new root judges nothing that is held",
        "trust.trust:Trust._judge",
        gives(None),
        overrides=_attacked("replace_enrol"),
    ),
    "law-accusers-forgiven": Mutant(
        "an accuser that was refuted is heard as before",
        "swim.standing:Standing.doubted",
        gives(False),
        overrides=_attacked("accuse_mad"),
        more=(("swim.standing:Standing.may_speak", gives(True)),),
    ),
    "law-borrower-takes-all": Mutant(
        "what is heard of an address counts for who said it last only",
        "swim.members:MemberTable.at",
        latest_only,
        overrides=_attacked("borrow_address", **{"faults.kinds": ["power_loss"], "checks.detect_s": 7.0}),
    ),
    "law-borrower-has-a-port": Mutant(
        "the open port of an address speaks for whoever says to be there",
        "swim.hosts:HostEvidence._is_anothers",
        gives(False),
        overrides=_attacked("borrow_address", **{"faults.kinds": ["power_loss"]}),
    ),
    "law-deaf-after-noise": Mutant(
        "after a stranger's noise no first contact is taken for a second",
        "channel.contact:Contacts.take",
        deaf_after_noise,
        overrides=_attacked("junk_flood", **{"faults.per_minute": 30}),
    ),
    "law-one-fail-halts": Mutant(
        "one member's word halts a release",
        "releases.rollout:fails_to_halt",
        gives(1),
        overrides=_attacked(
            "vote_down",
            **{
                "release.publish_at_s": 20.0,
                "release.bad_at_s": 0.0,
                "release.revoke_at_s": 0.0,
                "release.next_at_s": 0.0,
            },
        ),
    ),
    "law-facts-outlive-revocation": Mutant(
        "what a revoked author said stays in the state",
        "state.intake:Intake.judge",
        gives(None),
        overrides=_attacked("revoke_thief"),
    ),
    "law-shown-after-revocation": Mutant(
        "what a revoked author said goes out of the state and stays in the views",
        "state.holdings:Holdings._hide",
        still_shown,
        overrides=_attacked("revoke_thief", **{"workload.detections_per_min": 120}),
    ),
    "law-revocations-unwritten": Mutant(
        "a revocation is not journalled: a later life that hears nobody lets a thief in",
        "swim.sender:FrameSender.trust_changed",
        trust_unwritten,
        overrides=_attacked("revoke_thief"),
    ),
    "law-no-cut": Mutant(
        "a log of one author has no bound",
        "state.crdt.log:OriginLog._cut",
        gives([]),
        overrides=_attacked("fat_rows", **{"state.origin_cost_max": 4_000_000, "release.chance": 0.0}),
    ),
    "law-waiting-unbounded": Mutant(
        "whatever comes of unknown authors waits",
        "state.intake:Intake._wait",
        waits_unbounded,
        overrides=_attacked("invent_crowd", **{"state.waiting_max": 64, "release.chance": 0.0}),
    ),
    "law-journal-keeps-all": Mutant(
        "what was dropped of a log stays in the journal",
        "state.holdings:Holdings.drop",
        not_journalled,
        overrides=_attacked(
            "fill_disk", **{"state.origin_cost_max": 100_000, "checks.attacked_bytes_s": 0, "release.chance": 0.0}
        ),
    ),
    "law-nothing-is-kept": Mutant(
        "a new root names nothing of what old keys signed as right",
        "trust.roots:mark",
        gives(b""),
        overrides=_attacked("replace_models"),
    ),
    "law-promoted-is-open": Mutant(
        "one member's word halts what is promoted",
        "releases.policy:RolloutPolicy._settle",
        gives([]),
        overrides=_attacked(
            "vote_down",
            **{"release.bad_at_s": 0.0, "release.revoke_at_s": 0.0, "release.next_at_s": 0.0, "faults.per_minute": 60},
        ),
        more=(("releases.rollout:fails_to_halt", gives(1)),),
    ),
    "law-no-accounts": Mutant(
        "nobody is in debt, whatever it makes others do",
        "state.quota:Accounts.is_in_debt",
        gives(False),
        overrides=_attacked("fat_rows", **{"checks.attacked_bytes_s": 20_000, "release.chance": 0.0}),
    ),
    "law-no-volumes": Mutant(
        "an author's bytes are not counted",
        "state.quota:Quotas.__init__",
        endless_volumes,
        overrides=_attacked("fill_disk", **{"release.chance": 0.0}),
    ),
    "law-revoked-stay-on-disk": Mutant(
        "what a revoked author said stays in memory and journal",
        "state.holdings:Holdings.expel",
        gives(None),
        overrides=_attacked("revoke_thief", "note_storm", **{"release.chance": 0.0}),
    ),
    "law-left-for-good": Mutant(
        "what was left because of replaced keys is not tried again",
        "releases.policy:RolloutPolicy._go_back",
        left_for_good,
        overrides=_attacked("replaced_keys", **{"release.chance": 1.0}),
    ),
    "law-one-answer": Mutant("one member's answer is enough", "swim.repair:ANSWERS", lambda _: 1, "", _STARTS),
    "law-all-is-news": Mutant(
        "what comes early is new", "swim.event_baseline:Answers.is_news", gives(True), "", _STARTS
    ),
    "law-debts-for-ever": Mutant(
        "time pays no debts",
        "state.quota:Accounts._refill",
        gives(None),
        overrides=_attacked("fill_disk", **{"release.chance": 0.0}),
    ),
}
"""Bugs that only an attack shows."""

MUTANTS: dict[str, Mutant] = {**SWIM, **STATE, **RELEASE, **LAW, **LENDING}
"""All mutants by name."""
