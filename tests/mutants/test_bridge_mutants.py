"""Faults of the bridges that their laws must find: each law is run with the fault in place and has to fail."""

from collections.abc import Callable
from pathlib import Path

import pytest
from paho.mqtt.enums import MQTTErrorCode

from swarmd.brain import journal
from swarmd.bridges.mqtt import commands, wire
from swarmd.bridges.mqtt.bridge import MqttBridge
from swarmd.bridges.mqtt.shares import Shares
from swarmd.rates import TokenBucket, TokenBuckets
from swarmd.release import refusals
from tests.integration import test_mqtt_hostile as laws
from tests.property import test_mqtt_shares as share_laws
from tests.support.mutants import Mutant, assert_found
from tests.unit import test_journal as journal_laws
from tests.unit import test_mqtt_wire as wire_laws
from tests.unit import test_refusal_log as refusal_laws


def _everything_may_be_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands, "client_of", lambda topic, prefix: topic)


def _a_prefix_without_its_slash(patch: pytest.MonkeyPatch) -> None:
    real = commands.client_of
    patch.setattr(commands, "client_of", lambda topic, prefix: "x" if topic.startswith(prefix) else real(topic, prefix))


def _run_before_it_is_asked_where_to(patch: pytest.MonkeyPatch) -> None:
    real = commands.Commands.answer

    def answer(self: commands.Commands, verb: str, payload: bytes, response_topic: str) -> commands.Answer:
        self._reply(verb, payload)
        return real(self, verb, payload, response_topic)

    patch.setattr(commands.Commands, "answer", answer)


def _endless_buckets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenBuckets, "take", lambda self, who, now_ns: True)
    patch.setattr(TokenBucket, "take", lambda self, now_ns, tokens=1.0: True)


def _one_bucket_for_all_clients(patch: pytest.MonkeyPatch) -> None:
    real = TokenBuckets.take
    patch.setattr(TokenBuckets, "take", lambda self, who, now_ns: real(self, who[1], now_ns))


def _work_is_free(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TokenBucket, "spend", lambda self, now_ns, tokens: None)


def _bytes_are_free(patch: pytest.MonkeyPatch) -> None:
    real = TokenBucket.take
    patch.setattr(TokenBucket, "take", lambda self, now_ns, tokens=1.0: real(self, now_ns, min(tokens, 1.0)))


def _a_largest_reply_that_is_never_reached(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commands, "REPLY_MAX_BYTES", 1 << 40)


def _replies_are_kept_by_the_broker(patch: pytest.MonkeyPatch) -> None:
    real = MqttBridge._on_command

    def on_command(self: MqttBridge, message: object) -> None:
        link = self._link
        publish = link.publish  # type: ignore[union-attr]
        self._link = type(link)(publish=lambda *args, **rest: publish(*args, **{**rest, "retain": True}))  # type: ignore
        real(self, message)  # type: ignore[arg-type]

    patch.setattr(MqttBridge, "_on_command", on_command)


def _a_line_for_each_refusal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(refusals, "LINES_BURST", 1 << 30)
    patch.setattr(refusals, "PENDING_MAX", 1 << 30)


def _no_shares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(refusals, "SHARE_BYTES", 1 << 30)
    patch.setattr(refusals, "LINES_PER_S", 1 << 30)


def _a_new_share_with_each_life(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(refusals, "_shares", lambda path: {})


def _an_alarm_for_each_refusal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(refusals, "ALARM_PAUSE_NS", 0)


def _a_file_without_a_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal.Journal, "_connected", lambda self: journal._connect(self._path))


def _memory_without_a_bound(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal, "PENDING_BYTES", 1 << 40)


def _no_reserve_for_identity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal, "_RESERVE_PAGES", 0)
    patch.setattr(journal.Journal, "_is_identity", lambda self, key: False)


def _nobody_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    real = TokenBuckets.__init__
    patch.setattr(TokenBuckets, "__init__", lambda self, per_s, burst, most: real(self, per_s, burst, 1 << 40))


def _what_paho_refuses_ends_the_connection(patch: pytest.MonkeyPatch) -> None:
    patch.delattr(wire.Client, "_handle_publish")


def _what_cannot_be_read_is_not_acknowledged(patch: pytest.MonkeyPatch) -> None:
    real = wire.Client._handle_publish

    def handle(self: wire.Client) -> MQTTErrorCode:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(wire.Client, "_send_puback", lambda self, mid: MQTTErrorCode.MQTT_ERR_SUCCESS)
            return real(self)

    patch.setattr(wire.Client, "_handle_publish", handle)


def _whoever_is_on_the_broker_has_a_share(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shares, "_counts", lambda self, name: name not in self._dead)


def _nobody_makes_room(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Shares, "_make_room", lambda self, name: False)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_whoever_is_on_the_broker_has_a_share, share_laws.test_who_is_no_member_has_no_share),
        (_whoever_is_on_the_broker_has_a_share, share_laws.test_who_becomes_a_member_has_its_share_then),
        (_nobody_makes_room, share_laws.test_a_member_has_the_place_of_one_that_was_invented),
    ],
)
def test_the_law_of_shares_finds_the_fault(
    monkeypatch: pytest.MonkeyPatch, fault: Mutant, law: Callable[[], None]
) -> None:
    assert_found(fault, law, monkeypatch)


@pytest.mark.parametrize("fault", [_what_paho_refuses_ends_the_connection, _what_cannot_be_read_is_not_acknowledged])
def test_the_law_of_the_wire_finds_the_fault(monkeypatch: pytest.MonkeyPatch, fault: Mutant) -> None:
    assert_found(fault, wire_laws.test_law_what_cannot_be_read_is_acknowledged_and_forgotten, monkeypatch)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_everything_may_be_answered, lambda: laws.test_a_reply_that_would_go_elsewhere_is_not_even_composed("$SYS/x")),
        (
            _a_prefix_without_its_slash,
            lambda: laws.test_a_reply_that_would_go_elsewhere_is_not_even_composed("swarm/v1/farm/replyx/me"),
        ),
        (
            _run_before_it_is_asked_where_to,
            lambda: laws.test_a_reply_that_would_go_elsewhere_is_not_even_composed("other/x"),
        ),
        (_endless_buckets, laws.test_one_client_cannot_use_up_anothers_commands),
        (_endless_buckets, laws.test_whatever_is_asked_rates_hold_and_a_quiet_client_is_heard),
        (_one_bucket_for_all_clients, laws.test_one_client_cannot_use_up_anothers_commands),
        (_work_is_free, laws.test_dear_answers_are_given_as_rarely_as_they_are_dear),
        (_bytes_are_free, laws.test_replies_share_a_budget_of_bytes),
        (_a_largest_reply_that_is_never_reached, laws.test_a_reply_is_never_retained_and_has_a_largest_size),
        (_replies_are_kept_by_the_broker, laws.test_a_reply_is_never_retained_and_has_a_largest_size),
        (_nobody_is_forgotten, laws.test_the_table_of_clients_is_bounded),
    ],
)
def test_the_law_finds_the_fault(monkeypatch: pytest.MonkeyPatch, fault: Mutant, law: Callable[[], None]) -> None:
    assert_found(fault, law, monkeypatch)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_a_line_for_each_refusal, refusal_laws.test_one_message_of_512_junk_statements_is_eight_lines_and_an_alarm),
        (_no_shares, lambda folder: refusal_laws.check_shares(0, 2, 0.01)),
        (_a_new_share_with_each_life, refusal_laws.test_a_share_survives_a_restart),
        (_a_file_without_a_bound, journal_laws.test_a_flood_of_facts_stops_at_the_bound_and_names_its_author),
        (_memory_without_a_bound, journal_laws.test_a_flood_of_facts_stops_at_the_bound_and_names_its_author),
        (_no_reserve_for_identity, journal_laws.test_a_flood_of_facts_stops_at_the_bound_and_names_its_author),
        (_an_alarm_for_each_refusal, refusal_laws.test_a_flooder_is_named_once_an_hour),
    ],
)
def test_the_law_of_the_disk_finds_the_fault(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fault: Mutant,
    law: Callable[[Path], None],
) -> None:
    assert_found(fault, lambda: law(tmp_path), monkeypatch)
