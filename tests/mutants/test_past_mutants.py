"""A mutant for each rule of the past from peers: break the rule, and the law that stands for it must fail."""

from typing import Any

import pytest

from swarmd_protocols.past import fetching, givers, giving, messages
from swarmd_protocols.past.fetching import Fetcher
from swarmd_protocols.past.givers import Givers
from swarmd_protocols.past.giving import Giver
from swarmd_protocols.releases.allowance import Allowance
from swarmd_protocols.releases.upload_budget import UploadBudget
from tests.support import past_laws as laws
from tests.support.mutants import Law, Mutant, assert_found, each_law, each_mutant

JUDGE = Fetcher._judge
LEAVE = Fetcher._leave
ON_DENY = Fetcher.on_deny


def takes_any_signature(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching, "holds", lambda data, key, signer: True)


def takes_anybodys_pages(patch: pytest.MonkeyPatch) -> None:
    def judge(self: Fetcher, walk: Any, said: messages.Answer, now_ns: int) -> Any:
        good, spans, below, problem = JUDGE(self, walk, said, now_ns)
        return (list(said.pages), spans, below, "") if "where" in problem else (good, spans, below, problem)

    patch.setattr(Fetcher, "_judge", judge)


def takes_times_to_come(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching, "FUTURE_MS", 1 << 40)


def goes_on_asking_a_liar(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetcher, "_leave", lambda self, sender, what, now_ns: [])


def names_nobody(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Fetcher, sender: Any, what: str, now_ns: int) -> Any:
        return LEAVE(self, sender, what, now_ns)[:1]

    patch.setattr(Fetcher, "_leave", leave)


def takes_pages_in_any_order(patch: pytest.MonkeyPatch) -> None:
    def judge(self: Fetcher, walk: Any, said: messages.Answer, now_ns: int) -> Any:
        good, spans, below, problem = JUDGE(self, walk, said, now_ns)
        return good, spans, below, "" if "not asked for" in problem else problem

    patch.setattr(Fetcher, "_judge", judge)


def takes_silence_for_calm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetcher, "_why", lambda self, node, author, gap: [])


def takes_a_pause_for_whole(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching, "OFF", "whole")


def forgets_what_was_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching, "EXPIRED", "off")


def asks_authors_only(patch: pytest.MonkeyPatch) -> None:
    def keepers(self: Fetcher, node: Any, author: Any) -> Any:
        return [node] if node in self._givers else []

    patch.setattr(Fetcher, "_keepers", keepers)


def reads_no_certificate(patch: pytest.MonkeyPatch) -> None:
    def judge(self: Fetcher, walk: Any, said: messages.Answer, now_ns: int) -> Any:
        bare = messages.Answer(said.number, said.pages, said.more, said.floor_ms)
        return JUDGE(self, walk, bare, now_ns)

    patch.setattr(Fetcher, "_judge", judge)


def keeps_who_is_shut_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetcher, "on_trust", lambda self: [])


def keeps_who_was_shut_out_meanwhile(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetcher, "on_held", lambda self, held: [])


def keeps_names_that_are_made_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fetcher, "_make_room", lambda self, nodes, *, are_members=False: None)


def gives_to_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Giver, "_gives_to", lambda self, peer: True)


def has_no_budget(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UploadBudget, "is_spent", lambda self, size, now_ns: False)
    patch.setattr(UploadBudget, "take", lambda self, size, now_ns: True)


def has_no_share(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(giving._Debts, "may_have", lambda self, peer, now_ns: True)


def never_gives_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(UploadBudget, "watch", lambda self, read_sent: None)


def hears_every_question(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Allowance, "take", lambda self, peer, cost, now_ns: True)


def asks_the_silent_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching, "LIST_MAX_NS", fetching.LIST_NS)


def waits_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fetching, "TIMEOUT_NS", 1 << 62)


def who_is_slow_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Givers, "has_room", lambda self, now_ns: len(self.walks) < givers.WALKS_MAX)


def the_newest_is_always_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Givers, "turn_of", lambda self, node: 0)


def a_lost_link_pays_for_a_lie(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Givers, "_tidy", lambda self, now_ns: self._away.clear())


def any_word_pays_for_a_lie(patch: pytest.MonkeyPatch) -> None:
    def put_off(self: Fetcher, node: Any, reason: str, until_ns: int) -> None:
        giver = self._givers.get(node)
        if giver is not None:
            giver.reason, giver.denied_ns = reason, until_ns

    def on_deny(self: Fetcher, sender: Any, said: messages.Deny, now_ns: int) -> Any:
        if not said.number and sender in self._givers:
            self._givers[sender].list_ns = now_ns
            self._put_off(sender, "waiting", now_ns)
            return []
        return ON_DENY(self, sender, said, now_ns)

    patch.setattr(Fetcher, "_put_off", put_off)
    patch.setattr(Fetcher, "on_deny", on_deny)


def a_disk_is_waited_for_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(giving, "READ_NS", 1 << 62)


def telling_what_there_is_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Giver, "on_list", lambda self, peer, ask, now_ns: self._tell(peer, ask))

    def tell(self: Giver, peer: Any, ask: messages.List) -> Any:
        self._ticket += 1
        free[self._node, self._ticket] = peer, ask.number
        return [giving.Order(giving.NAME, giving.requests.FindRows(self._ticket))]

    free: dict[int, Any] = {}

    def answer(self: Giver, found: Any, now_ns: int) -> Any:
        peer, number = free.pop((self._node, found.ticket))
        return [giving._send(peer, messages.encode_message(messages.Listing(number, found.rows)))]

    patch.setattr(Giver, "_tell", tell, raising=False)
    patch.setattr(Giver, "on_rows", answer)


def who_waits_first_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(giving._Debts, "turn_of", lambda self, peer: 0)


def liar(lie: str) -> Law:
    def law() -> None:
        laws.a_liar_is_named_and_left(lie)

    law.__name__ = f"liar_{lie.replace(' ', '_')}"
    return law


UNSIGNED, OTHERS, FUTURE, ORDER = (liar(lie) for lie in ("unsigned", "of another", "of times to come", "in no order"))
PAIRS: list[tuple[Law, Mutant]] = [
    (UNSIGNED, takes_any_signature),
    (OTHERS, takes_anybodys_pages),
    (FUTURE, takes_times_to_come),
    (ORDER, takes_pages_in_any_order),
    (UNSIGNED, goes_on_asking_a_liar),
    (UNSIGNED, names_nobody),
    (laws.a_gap_is_a_gap, takes_silence_for_calm),
    (laws.a_gap_is_a_gap, takes_a_pause_for_whole),
    (laws.a_gap_is_a_gap, forgets_what_was_dropped),
    (laws.another_observer_keeps_it, asks_authors_only),
    (laws.a_stranger_to_the_author_reads_its_certificate, reads_no_certificate),
    (laws.who_is_shut_out_has_no_past, keeps_who_is_shut_out),
    (laws.who_is_shut_out_has_no_past, keeps_who_was_shut_out_meanwhile),
    (laws.only_roles_that_may_are_given_to, gives_to_everybody),
    (laws.what_is_given_is_bounded, has_no_budget),
    (laws.what_is_given_is_bounded, has_no_share),
    (laws.what_is_given_is_bounded, never_gives_way),
    (laws.who_asks_without_end_is_not_heard, hears_every_question),
    (laws.names_that_are_made_up_leave_room_for_members, keeps_names_that_are_made_up),
    (laws.an_older_member_is_no_liar, asks_the_silent_without_end),
    (laws.a_disk_that_does_not_answer_is_no_end, a_disk_is_waited_for_without_end),
    (laws.what_there_is_is_told_out_of_the_budget, telling_what_there_is_is_free),
    (laws.askers_that_agree_leave_another_its_turn, who_waits_first_stays),
    (laws.silent_givers_hold_up_nobody, who_is_slow_keeps_its_place),
    (laws.slow_givers_hold_up_nobody, the_newest_is_always_first),
    (laws.a_liar_that_goes_and_comes_back_is_left, a_lost_link_pays_for_a_lie),
    (laws.a_liar_that_goes_and_comes_back_is_left, any_word_pays_for_a_lie),
    (laws.loss_takes_nothing, waits_without_end),
]


@each_law(PAIRS)
def test_the_law_holds(law: Law) -> None:
    law()


@each_mutant(PAIRS)
def test_the_mutant_is_found(law: Law, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(mutant, law, monkeypatch)
