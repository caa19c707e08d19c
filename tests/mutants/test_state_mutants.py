"""A mutant for each rule of the replicated state: break the rule, and a check that stands for it must fail.

Each case patches one line of behaviour and runs the check against it; the same check passes unpatched.
"""

# Longer: one list says of each rule of the state which check stands for it.

import random
import sys
from itertools import accumulate

import pytest

from swarmd_protocols.effects import Persist
from swarmd_protocols.releases.reports import ReportBook, Verdict
from swarmd_protocols.state import anti_entropy as anti_entropy_module
from swarmd_protocols.state import intake as intake_module
from swarmd_protocols.state import projection as projection_module
from swarmd_protocols.state import quota as quota_module
from swarmd_protocols.state import replica as replica_module
from swarmd_protocols.state.anti_entropy import AntiEntropy
from swarmd_protocols.state.asked import Asked
from swarmd_protocols.state.author import Author
from swarmd_protocols.state.certificate_questions import CertificateQuestions
from swarmd_protocols.state.claims import claims as claims_module
from swarmd_protocols.state.claims.config import ClaimConfig
from swarmd_protocols.state.claims.turns import Turns
from swarmd_protocols.state.clock import Clock
from swarmd_protocols.state.contradictions import Contradictions
from swarmd_protocols.state.crdt import messages as messages_module
from swarmd_protocols.state.crdt import records as records_module
from swarmd_protocols.state.crdt.facts import Join
from swarmd_protocols.state.crdt.log import OriginLog
from swarmd_protocols.state.crdt.notes import NoteMap
from swarmd_protocols.state.crdt.ownlog import OwnLog
from swarmd_protocols.state.dedup.own import OwnSightings
from swarmd_protocols.state.dedup.view import DedupView
from swarmd_protocols.state.holdings import Holdings
from swarmd_protocols.state.intake import Intake
from swarmd_protocols.state.pauses import Pauses
from swarmd_protocols.state.quota import Accounts, Answers, Quotas, Relays, Volumes
from swarmd_protocols.state.shown import Shown
from swarmd_protocols.state.vitals import Vitals
from tests.property import test_author_bytes as author_bytes
from tests.property import test_clock_laws as clocks
from tests.property import test_dedup_view as dedup_tests
from tests.property import test_gone_laws as gone
from tests.property import test_liar_laws as liars
from tests.property import test_named_laws as named
from tests.property import test_state_answers as answers
from tests.property import test_state_laws as laws
from tests.property import test_state_trust as trusts
from tests.sim import test_claims_swarm as claims_tests
from tests.sim import test_state_freshness as freshness
from tests.sim import test_state_schedules as schedules
from tests.support.mutants import assert_found
from tests.unit import test_certificate_questions as certificates
from tests.unit import test_claims_turns as turns
from tests.unit import test_state_attacks as attacks
from tests.unit import test_state_events as events_tests
from tests.unit import test_state_hostile as hostile
from tests.unit import test_state_laws_of_time as times
from tests.unit import test_state_replica as basics
from tests.unit import test_state_vitals as vitals_tests


def what_is_set_aside():
    for seed in range(20):
        laws.check_what_is_set_aside(seed, random.Random(seed))


def laws_of_the_store():
    for seed in range(25):
        rng, shuffler = random.Random(seed), random.Random(seed + 1)
        batches = [batch for who in range(3) for batch in laws.history(rng, who)]
        once = laws.state_of(*laws.build(batches))
        for _ in range(3):
            order = batches + shuffler.sample(batches, len(batches) // 2)
            shuffler.shuffle(order)
            store, views = laws.build(order)
            assert laws.state_of(store, views) == once
            assert store.lasting_digest() == laws.build(batches)[0].lasting_digest()


def some_schedules():
    for seed in range(60):
        schedules.test_schedule(seed)


def some_schedules_at_first_sight():
    """Without the look through groups that differ for no reason, which brings what was never asked for too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Contradictions, "to_name", lambda *_: [])
        some_schedules()


def bounds_of_the_log():
    for seed in range(40):
        laws.check_bounds_that_are_joins(seed, random.Random(seed))


# --- Mutants: (name, what to patch, how, which check must fail) -------------------------------------------------------


def out_of_order_dots_count_as_seen(self, incarnation):
    """The dot bug: the frontier jumps over a gap, so the gap is never asked for."""
    self.frontier[incarnation] = max((n for life, n in self.facts if life == incarnation), default=0)


def older_row_wins(self, origin, row, dot):
    held = self.get(origin, row.key)
    if held is not None and held.dot < dot:
        held.dot = dot
        return None
    return PUT(self, origin, row, dot)


def base_does_not_drop(self, base):
    self.base = base
    return []


def nothing_expires(self, leader):
    return 10**12


def no_clock_bound(self, stamp, now_ns):
    self._last = max(self._last, stamp)
    return True


def bound_against_own_stamps(self, stamp, now_ns):
    reference = max(self.physical_ms(now_ns), self._last >> 16)
    if (stamp >> 16) > reference + self._config.drift_bound_ms:
        return False
    self._last = max(self._last, stamp)
    return True


def mean_instead_of_median(self, now_ns):
    votes = [offset for offset, _ in self._votes.values()]
    self._offset_ns = sum(votes) // len(votes)
    self.synced = len(votes) >= 3


def settle_all(self, budget=None):
    return SETTLE(self)


def sealed_without_journal(self, stream, body, effects, now_ns):
    if "count" in sys._getframe(1).f_code.co_name:
        return SEAL(self, stream, body, [], now_ns)
    return SEAL(self, stream, body, effects, now_ns)


def refuse_when_full(self, cost_max):
    """The quota as it would be without thought: whatever is over it is dropped, in the order of arrival."""
    newest = next(reversed(self.facts.values()))
    if self.cost <= cost_max:
        return []
    del self.facts[newest.dot]
    self.lasting -= int.from_bytes(newest.digest, "little")
    self.size_bytes -= len(newest.raw)
    self.cost -= newest.cost
    return []


def removal_needs_its_put(self, dot, stamp, by=None):
    if dot in self._said:
        self._removed.setdefault(dot, {})[stamp, by] = 1


def remove_wins(self, dot, key, value, stamp, removes=()):
    if any(put.key == key for held in self._removed for put in self._said.get(held, ())):
        return
    NOTE_PUT(self, dot, key, value, stamp, removes)


def latest_of_all(self, dot, key, value, stamp, removes=()):
    NOTE_PUT(self, dot, key, value, 1 << 60 if value.startswith(b"open") else stamp, removes)


def last_note_counts(self, dot, key, value, stamp, removes=()):
    self._said.pop(dot, None)
    NOTE_PUT(self, dot, key, value, stamp, removes)


def last_report_counts(self, signed, known):
    self.statuses[signed.report.node, signed.report.model] = signed
    if signed.report.verdict is not Verdict.NONE and signed.report.release in known:
        self.votes[signed.report.release, signed.report.node] = signed


def quarantine_of_nobody(self, origin, proof, sender, effects):
    return None


def unsigned_is_good(batch, key, signer):
    return True


def cleaner_forgets(self, new):
    CLEAN(self, new)
    return []


def nothing_is_journalled(self, effects, now_ns):
    FLUSH(self, effects, now_ns)
    effects[:] = [effect for effect in effects if not isinstance(effect, Persist)]


def same_incarnation(restored, life):
    return 7


def siblings_do_not_count(self, entry):
    return []


def leaders_are_not_reconsidered(self, leader):
    return None


def nearest_by_arrival(self, entry):
    for leader in self.leaders():
        if leader is not entry and self._distance(
            entry.row.east_cm - leader.row.east_cm, entry.row.north_cm - leader.row.north_cm,
            entry.row.covariance_cm2, leader.row.covariance_cm2,
        ) >= 0:  # fmt: skip
            return leader
    return entry


def asks_nobody(self, peer, lasting, vitals, now_ns, theirs=b""):
    return []


def one_life_of_counters(self, names=()):
    out = {name: {} for name in names}
    for origin, life in sorted(self._counters):
        for name, value in self._counters[origin, life].items():
            out.setdefault(name, {})[origin] = value
    yield out


def everybody_wins(self, key, now_ns):
    return None


def squatters_are_honoured(self, key, now_ns):
    best = None
    for node, heard in self._heard.get(key, {}).items():
        if now_ns - heard.renewed_ns <= self._config.observer_ns:
            order = (not heard.lease.working, heard.lease.bid, node)
            best = order if best is None else min(best, order)
    return best


def the_way_does_not_count(self, cell):
    return min(self._config.settle_ns // 2, self.turns.rank(self._records) * claims_module._SLOT_NS)


def what_waits_is_left_alone(self, now_ns):
    east, north = self._origin()
    free = [
        (abs(cell.east_cm - east) + abs(cell.north_cm - north), key)
        for key, cell in self.cells.items()
        if not self.done.get(key) and key not in self.held and self._best_heard(key, now_ns) is None
    ]
    return min(free)[1] if free else None


def held_cells_are_no_way(self, cell):
    east, north = self._origin()
    return abs(cell.east_cm - east) + abs(cell.north_cm - north)


def leases_never_end(self, key, now_ns):
    best = None
    for node, heard in self._heard.get(key, {}).items():
        order = (not heard.lease.working, heard.lease.bid, node)
        best = order if best is None else min(best, order)
    return best


PUT = DedupView.put
NOTE_PUT = NoteMap.put
CLEAN = OwnLog._clean
FLUSH = Author.flush
SETTLE = DedupView.settle
PUBLISH = AntiEntropy.publish


def repairs_are_not_named(self, batches, heard_from, now_ns, more=False):
    is_pushed = len(batches) <= 4 and not more
    return PUBLISH(self, batches, heard_from, now_ns) if is_pushed or heard_from == self._node else []


SEAL = Author._seal
MAY_HAVE = Answers.may_have


def always_answered(self, asker, held_bytes, now_ns):
    MAY_HAVE(self, asker, held_bytes, now_ns)
    return True


MAY_SEND = Relays.may_send


def asked_as_pushed(self, author, held_bytes, now_ns, asker=None):
    self._shares[author, asker] = quota_module._Share(0, now_ns, 0)
    return MAY_SEND(self, author, held_bytes, now_ns)


ON_CERTIFICATES = Intake.on_certificates


def charged_to_its_sender(self, sender, came, effects, now_ns):
    self._charge_sender(sender, quota_module.VERIFY_UNITS * len(came.statements), effects, now_ns)
    ON_CERTIFICATES(self, sender, came, effects, now_ns)


FOR = AntiEntropy._for


def cut_before_it_is_chosen(self, peer, batches, now_ns, most_bytes=None, *rest):
    sizes = accumulate(len(batch.raw) for batch in batches)
    kept = [batch for batch, size in zip(batches, sizes, strict=True) if most_bytes is None or size <= most_bytes]
    return FOR(self, peer, kept, now_ns, most_bytes, *rest)


def charged_to_its_subject(self, sender, came, effects, now_ns):
    for statement in came.statements:
        certificate = self._trust.admit_certificate(statement)
        self.quotas.authors.charge(certificate.node, quota_module.VERIFY_UNITS, now_ns)


def the_author_is_named(self, sender, batch, now_ns):
    return self.own_words.bring(batch.origin, batch.origin, 9 * len(batch.raw), now_ns, batch)


KNOW_ROSTER = claims_module.Claims.know_roster


def who_was_alone_works_at_once(self, roster, reachable, now_ns, swarm=0):
    KNOW_ROSTER(self, roster, reachable, now_ns, swarm)
    self.turns.came_ns = -(1 << 62)


def only_the_lonely_wait(self, roster, reachable, now_ns, swarm=0):
    was_alone, came_ns = len(self._reachable) == 1, self.turns.came_ns
    KNOW_ROSTER(self, roster, reachable, now_ns, swarm)
    self.turns.came_ns = self.turns.came_ns if was_alone else came_ns


RESTORE_RECORDS, PATIENCE_OF = Author.restore_records, claims_module.Claims._patience_ns
WAIT = Intake._wait
SAY = Author._say


def a_new_life_says_no_status(self):
    RESTORE_RECORDS(self)
    self._status = b""


def nothing_rode_before(self):
    RESTORE_RECORDS(self)
    self._rode = False


def nothing_is_taken_back(self, stream, effects, now_ns):
    if stream.name != "STATUS" or self._status:
        SAY(self, stream, effects, now_ns)
    else:
        self._dirty.pop(stream, None)


def each_record_by_itself(self, effects, now_ns):
    for stream in [stream for stream in self._dirty if now_ns >= self._due_ns(stream)]:
        self._say(stream, effects, now_ns)


def nobody_gives_up_its_turn(self, cell):
    self.turns.free = 1_000
    return PATIENCE_OF(self, cell)


def a_size_is_waited_for(self, cell):
    rank, free = self.turns.rank(self._records), self.turns.free
    return PATIENCE_OF(self, cell) if rank < free else min(free, rank) * claims_module._SLOT_NS


def who_repeats_it_prolongs_it(self, sender, batch, now_ns):
    self._waiting.pop(batch.digest, None)
    return WAIT(self, sender, batch, now_ns)


def what_waited_in_vain_is_not_asked_for(self, sender, batch, now_ns):
    self._let_go.clear()
    return WAIT(self, sender, batch, now_ns)


def only_neighbours_count(self, roster, reachable, now_ns, swarm=0):
    KNOW_ROSTER(self, roster, reachable, now_ns, swarm)
    self.turns.unseen = 0


def each_return_delays_work(self, roster, reachable, now_ns, swarm=0):
    came_ns, self.turns.came_ns = self.turns.came_ns, -(1 << 62)
    KNOW_ROSTER(self, roster, reachable, now_ns, swarm)
    self.turns.came_ns = max(came_ns, self.turns.came_ns)


CORRECT = Author.correct


def once_sure_is_sure_for_ever(self, step_ms, effects):
    sure_life = self.sure_life
    CORRECT(self, step_ms, [])
    self.sure_life = sure_life


def cut_without_a_bound(self, step):
    return [item for item, _ in self._cut.values()]


RESTAMP = OwnSightings.restamp


def joins_keep_their_time(self, step_ms):
    return [fact for fact in RESTAMP(self, step_ms) if not isinstance(fact, Join)]


WORTH_SAYING = OwnSightings._worth_saying


def what_is_earlier_is_not_said(self, said, row, ending):
    return row.last >= said.last and WORTH_SAYING(self, said, row, ending)


MUTANTS = [
    ("out-of-order dots count as seen", OriginLog, "_advance", out_of_order_dots_count_as_seen,
     some_schedules_at_first_sight),
    ("an older row wins", DedupView, "put", older_row_wins, laws_of_the_store),
    ("the base drops nothing", OriginLog, "_raise_base", base_does_not_drop, laws_of_the_store),
    ("expired is shown again", Shown, "_ttl_ms", nothing_expires, claims_tests.check_expiry),
    ("no bound on stamps", Clock, "observe", no_clock_bound, laws.test_peers_cannot_ratchet_the_clock),
    ("bound against own stamps", Clock, "observe", bound_against_own_stamps, laws.test_peers_cannot_ratchet_the_clock),
    ("a clock ahead is believed", Clock, "observe", no_clock_bound,
     hostile.test_a_clock_an_hour_ahead_shows_nothing_and_drags_nobody),
    ("mean of the clocks", Clock, "_settle", mean_instead_of_median, laws.test_one_wrong_clock_of_four_moves_nobody),
    ("a clock set wrong stays wrong", Clock, "_is_outvoted", lambda *_: False,
     laws.test_a_clock_that_was_set_by_the_wrong_three_is_set_again),
    ("outvoted for a moment", Clock, "_is_outvoted", lambda self, votes, _: True,
     laws.test_a_clock_that_is_contradicted_for_a_moment_is_not_set_again),
    ("a contradicted clock is sure", Clock, "is_sure", lambda self, now: self.synced and not self.is_young(now),
     times.test_a_clock_that_the_median_contradicts_asks_often_until_it_is_set),
    ("what is contradicted is not looked at", Clock, "_is_outvoted", lambda *_: False,
     lambda: [times.clocks_settle(seed) for seed in range(8)]),
    ("what is set aside hides what it replaced", projection_module.Projection, "show_again", lambda self, batch: None,
     what_is_set_aside),
    ("a removal needs its put", NoteMap, "remove", removal_needs_its_put,
     laws.test_a_removal_that_comes_before_its_put_still_holds),
    ("a removal is good for what comes after it too", NoteMap, "_is_removed", lambda self, dot, _: dot in self._removed,
     attacks.check_a_note_is_shown_whatever_was_removed_before_it),
    ("a note is as late as its author says", NoteMap, "put", latest_of_all,
     attacks.check_a_note_is_shown_whatever_was_removed_before_it),
    ("remove wins", NoteMap, "put", remove_wins, laws.test_a_concurrent_put_survives_a_removal),
    ("of two notes under one dot the last counts", NoteMap, "put", last_note_counts,
     lambda: [liars.check_liar(seed, random.Random(seed)) for seed in range(300)]),
    ("the last of two notes counts", NoteMap, "put", last_note_counts,
     liars.test_two_notes_under_one_dot_show_the_same_one_everywhere),
    ("of two verdicts the last counts", ReportBook, "add", last_report_counts,
     lambda: [liars.check_reports(seed, random.Random(seed)) for seed in range(50)]),
    ("nobody is quarantined", Intake, "_convict", quarantine_of_nobody,
     hostile.test_two_payloads_under_one_dot_quarantine_their_author_everywhere),
    ("any signature is good", intake_module, "verify_batch", unsigned_is_good,
     hostile.test_a_batch_signed_by_another_key_is_refused_and_counted),
    ("the cleaner forgets the living", OwnLog, "_clean", cleaner_forgets,
     basics.test_a_hundred_reboots_do_not_grow_the_state),
    ("nothing is journalled", Author, "flush", nothing_is_journalled,
     basics.test_what_nobody_else_heard_outlives_a_restart),
    ("every life has one incarnation", replica_module, "_first_incarnation", same_incarnation, some_schedules),
    ("what stands side by side is merged", DedupView, "_siblings", siblings_do_not_count,
     dedup_tests.test_incremental_is_from_scratch_in_larger_worlds),
    ("lower ranks are not reconsidered", DedupView, "_push_below", leaders_are_not_reconsidered,
     dedup_tests.test_incremental_is_from_scratch_in_larger_worlds),
    ("first come, first served", DedupView, "_choose", nearest_by_arrival, dedup_tests.test_order_does_not_matter),
    ("no repair", AntiEntropy, "ask_sync", asks_nobody, some_schedules),
    ("one life of counters", Vitals, "counter_parts", one_life_of_counters,
     basics.test_a_lost_disk_is_filled_again_by_peers),
    ("claims of others are not heard", claims_module.Claims, "_best_heard", everybody_wins,
     claims_tests.check_one_worker_a_cell),
    ("squatters are honoured", claims_module.Claims, "_best_heard", squatters_are_honoured,
     claims_tests.test_a_squatter_is_ignored),
    ("leases never end", claims_module.Claims, "_best_heard", leases_never_end,
     claims_tests.test_a_crashed_holder_is_replaced),
    ("a wrong clock lets go", Clock, "is_sure", lambda self, now_ns: True,
     times.test_a_clock_an_hour_ahead_lets_go_of_nothing_that_others_were_told),
    ("what a wrong clock stamped is old", projection_module.Projection, "renew", lambda *args: [],
     times.test_what_a_life_with_a_wrong_clock_said_is_not_lost),
    ("what a slow clock cut stays cut", OwnLog, "uncut", lambda self, step: [],
     clocks.test_three_slow_peers_that_set_a_starting_clock_make_nothing_old),
    ("what was cut is said again as it was", OwnLog, "uncut", cut_without_a_bound,
     clocks.test_a_small_step_of_the_clock_makes_nothing_seen_anew),
    ("one answer settles a clock", replica_module.Replica, "_is_settled", lambda self, now_ns: True,
     clocks.test_one_slow_peer_makes_no_starting_node_say_its_log_again),
    ("once sure is sure for ever", Author, "correct", once_sure_is_sure_for_ever,
     clocks.test_a_confirmed_clock_that_is_set_wrong_afterwards_is_not_believed_in_the_next_life),
    ("a join keeps a slow clock's time", OwnSightings, "restamp", joins_keep_their_time,
     lambda: clocks.test_who_joined_by_a_slow_clock_keeps_the_thing_in_view(dies=False)),
    ("joins of a slow clock are not renewed", Shown, "join_of", lambda *args: None,
     lambda: clocks.test_who_joined_by_a_slow_clock_keeps_the_thing_in_view(dies=True)),
    ("what is earlier than said is not said", OwnSightings, "_worth_saying", what_is_earlier_is_not_said,
     clocks.test_a_thing_that_is_seen_all_the_time_is_shown_all_the_time),
    ("only what is gone already is renewed", projection_module, "_AGEING", 1_000,
     lambda: times.test_a_life_whose_clock_was_never_confirmed_makes_nothing_old(times.SOON_OLD_NS)),
    ("a count is on disk when it is said", Author, "_seal", sealed_without_journal,
     times.test_a_count_that_was_accepted_is_on_disk_with_the_same_list_of_effects),
    ("a journal from the future counts", Holdings, "ahead", lambda self, now_ns: {},
     times.test_a_journal_from_the_future_counts_no_more_than_what_peers_say),
    ("debts are never paid", Accounts, "is_in_debt", lambda self, node, now_ns: False,
     lambda: attacks.test_a_member_that_floods_is_bounded_named_and_over_soon(attacks.churn)),
    ("what is replaced is charged to its author", Holdings, "is_stale", lambda self, batch: False,
     lambda: attacks.test_who_repeats_what_an_author_has_replaced_answers_for_it("record")),
    ("what lies below a base is charged to its author", Holdings, "is_stale", lambda self, batch: False,
     lambda: attacks.test_who_repeats_what_an_author_has_replaced_answers_for_it("facts")),
    ("nobody is named", Accounts, "charge", lambda self, *args: [],
     lambda: attacks.test_a_member_that_floods_is_bounded_named_and_over_soon(attacks.churn)),
    ("answers have no bound", Answers, "may_have", always_answered,
     lambda: answers.check_asker_gets_its_share(1)),
    ("askers pay for nothing", Answers, "spend", lambda self, *args: None,
     lambda: answers.check_asker_gets_its_share(1)),
    ("an author's bytes have no bound", Volumes, "charge", lambda self, *args: [],
     lambda: author_bytes.check_a_flood(1)),
    ("what is sent of an author has no bound", Relays, "spend", lambda self, *args: None,
     lambda: author_bytes.check_relays([(0, 900, True)] * 9, 0)),
    ("an asker's share is the whole rate", quota_module, "RELAY_ASKER_SHARE", 1,
     lambda: named.check_askers(120_000, 100, [(10, 10)] * 20)),
    ("askers have no shares", Relays, "may_send", asked_as_pushed, named.check_a_newcomer_beside_who_asks),
    ("who wrote what is brought is named", Quotas, "refuse", the_author_is_named,
     lambda: named.check_who_is_named(named.BROUGHT)),
    ("whoever could not pay for its answer is asked", Quotas, "may_ask", lambda *_: True,
     lambda: named.check_who_is_outpaced_is_not_named(20, 600, 13)),
    ("who reads is named for what it reads", Quotas, "answer_bytes", lambda *_: 1 << 30,
     named.check_a_long_state_is_read),
    ("batches go without the certificate of who is gone", anti_entropy_module, "certificates_for", lambda *_: {},
     lambda: gone.check_who_are_gone_are_read(20, 120, 1)),
    ("what is being read is asked for again", Intake, "is_reading", property(lambda self: False),
     gone.check_the_price),
    ("two questions that cross are answered twice", Asked, "may_answer", lambda *_: False, gone.check_the_price),
    ("what is held is asked for by name", Asked, "_has", lambda self, name: name in self._known,
     gone.check_the_price),
    ("a certificate that is news is its sender's to pay for", Intake, "on_certificates", charged_to_its_sender,
     lambda: gone.check_who_are_gone_are_read(1500, 1, 1)),
    ("batches of no size wait to be read", messages_module, "BATCH_MIN_BYTES", 0,
     attacks.check_what_is_tiny_does_not_pile_up),
    ("what may not be sent takes up the room of an answer", AntiEntropy, "_for", cut_before_it_is_chosen,
     gone.check_what_may_not_be_sent_takes_no_room),
    ("a certificate is its subject's to pay for", Intake, "on_certificates", charged_to_its_subject,
     attacks.check_who_repeats_certificates_pays),
    ("who takes nothing is sent news", Pauses, "takes", lambda self, *args: True,
     lambda: author_bytes.check_a_flood(1)),
    ("nobody says what it takes", Quotas, "room", lambda self, *args: None,
     lambda: author_bytes.check_a_flood(1)),
    ("what comes too late is refused", OriginLog, "_cut", refuse_when_full, bounds_of_the_log),
    ("a log has no bound", OriginLog, "_cut", lambda self, cost_max: [], bounds_of_the_log),
    ("slices have no end", DedupView, "settle", settle_all, attacks.test_a_stack_of_thousands_costs_a_slice_at_a_time),
    ("crowds have no bound", DedupView, "_displace", lambda self, entry: None,
     dedup_tests.test_a_crowd_is_told_apart_up_to_its_bound),
    ("rows may be later than their batch", projection_module, "_in_time", lambda facts, stamp: facts,
     attacks.test_no_row_is_later_than_the_batch_that_says_it),
    ("a change of trust is not heard", Intake, "judge", lambda self: None,
     trusts.test_a_name_enrolled_again_drops_the_facts_of_the_old_key),
    ("nobody is asked for a certificate", Intake, "_ask_certificates", lambda *_: None,
     hostile.test_news_of_an_author_never_met_is_read_before_any_comparison),
    ("the revoked stay on disk", Holdings, "expel", lambda self, origin: None,
     trusts.test_revoking_a_node_takes_its_facts_out_of_every_view_and_keeps_them_out),
    ("who leaned on the revoked says nothing", OwnSightings, "take_orphans", lambda self, _: [],
     trusts.test_what_others_saw_too_stays_when_the_first_to_say_it_is_revoked),
    ("events of the revoked stay", Vitals, "forget", lambda self, origin: None,
     events_tests.test_who_is_revoked_has_said_nothing),
    ("known events are told again", Vitals, "take_learned", lambda self: list(self._learned),
     events_tests.test_everybody_has_them_each_is_told_once_and_none_later_than_it_was_said),
    ("events are only said, not kept", Author, "restore_records", lambda self: None,
     events_tests.test_an_author_goes_on_where_its_last_life_ended),
    ("a record of events has no bound", records_module, "EVENTS_MAX", 10_000,
     lambda: events_tests.check_the_newest_stay("x")),
    ("who was alone works at once", claims_module.Claims, "know_roster", who_was_alone_works_at_once,
     claims_tests.test_who_was_alone_begins_nothing_that_others_have_done),
    ("who was with another works at once", claims_module.Claims, "know_roster", only_the_lonely_wait,
     claims_tests.begun_by_the_smaller_part),
    ("each return delays work", claims_module.Claims, "know_roster", each_return_delays_work,
     claims_tests.test_a_peer_that_comes_and_goes_keeps_nobody_from_work),
    ("all speak at once", claims_module.Claims, "_patience_ns", lambda self, cell: 0, claims_tests.check_no_scramble),
    ("the turn counts, the way does not", claims_module.Claims, "_patience_ns", the_way_does_not_count,
     claims_tests.check_the_nearest_speaks_first),
    ("what waits is left alone", claims_module.Claims, "_choose", what_waits_is_left_alone,
     claims_tests.check_a_waiting_cell_goes_to_who_is_near),
    ("only half the way counts", claims_module, "_SHORTER", 1_000,
     claims_tests.check_the_last_cell_goes_to_who_saves_much_of_the_way),
    ("cells held before count as no way", claims_module.Claims, "_way_cm", held_cells_are_no_way,
     claims_tests.check_who_is_there_sooner_wins),
    ("news has no names", AntiEntropy, "rumor", lambda self, muted: [], freshness.check_freshness),
    ("repairs are not named", AntiEntropy, "publish", repairs_are_not_named, freshness.check_healing),
    ("what was named is not asked for", AntiEntropy, "answer_recent", lambda self, peer, recent: [],
     freshness.check_freshness),
    ("all are asked for a certificate", CertificateQuestions, "ask", lambda self, peer, authors, now_ns: [*authors],
     certificates.check_who_keeps_a_certificate_back_delays_it_by_moments),
    ("who keeps a certificate back is waited for", CertificateQuestions, "again", lambda self, now_ns: {},
     certificates.check_who_keeps_a_certificate_back_delays_it_by_moments),
    ("what waits for a certificate is asked for again", AntiEntropy, "await_key", lambda *args: None,
     certificates.check_what_waits_for_a_certificate_is_not_asked_for_by_name),
    ("who repeats a batch prolongs its wait", Intake, "_wait", who_repeats_it_prolongs_it,
     certificates.check_who_repeats_a_batch_prolongs_nothing),
    ("what waited in vain is not asked for", Intake, "_wait", what_waited_in_vain_is_not_asked_for,
     certificates.check_who_repeats_a_batch_prolongs_nothing),
    ("a status goes with the counters that carried it", Author, "_carry_status", lambda *args, **how: None,
     vitals_tests.check_a_status_that_no_longer_fits_stays),
    ("a new life does not know that counters carried the status", Author, "restore_records", nothing_rode_before,
     vitals_tests.check_a_new_life_whose_counters_have_grown_keeps_the_status),
    ("what is taken back is said by silence", Author, "_say", nothing_is_taken_back,
     vitals_tests.check_a_status_that_is_taken_back_stays_away),
    ("a status goes twice", Author, "say_vitals", each_record_by_itself,
     vitals_tests.check_a_status_beside_counters_is_not_said_alone_too),
    ("a new life says no status", Author, "restore_records", a_new_life_says_no_status,
     vitals_tests.check_a_new_life_goes_on_with_the_status),
    ("a replaced status still counts", Vitals, "drop_status", lambda *args: None, laws_of_the_store),
    ("who will find no cell free speaks with all", claims_module.Claims, "_patience_ns", nobody_gives_up_its_turn,
     turns.check_who_will_find_none_free_lets_all_others_speak),
    ("a size that a neighbour makes up is waited for", claims_module.Claims, "_patience_ns", a_size_is_waited_for,
     turns.check_a_size_that_a_neighbour_makes_up_costs_a_renewal),
    ("who is not known does not count", claims_module.Claims, "know_roster", only_neighbours_count,
     turns.check_who_knows_its_neighbours_alone_counts_all),
    ("who has met nobody speaks", Turns, "listens_until_ns", lambda self, since_ns, settle_ns: 0,
     turns.check_who_has_met_nobody_looks_around_first),
    ("margin below drift", ClaimConfig, "holder_ns", property(lambda self: self.lease_ns),
     claims_tests.check_leases_under_drift),
]  # fmt: skip


@pytest.mark.parametrize(("where", "name", "how", "check"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS])
def test_the_mutant_is_caught(where, name, how, check, monkeypatch):
    assert_found(lambda patch: patch.setattr(where, name, how), check, monkeypatch)


def test_the_law_that_stands_only_here_passes_unpatched():
    assert laws_of_the_store() is None, "its own assertions"
