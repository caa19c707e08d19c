"""A mutant for each rule of the door for operators; the law that stands for it finds it."""

import shutil
import ssl
from types import SimpleNamespace

import pytest

from swarmd.api import operators
from tests.integration import test_operators_door as laws
from tests.support.mutants import assert_found

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed (apt install openssl)"
)


def _no_certificate_is_asked_for(patch):
    original = operators.server_context

    def lax(settings):
        context = original(settings)
        context.verify_mode = ssl.CERT_NONE
        return context

    patch.setattr(operators, "server_context", lax)
    patch.setattr(operators, "_name_of", lambda shown: "alice")
    patch.setattr(
        operators, "hashlib", SimpleNamespace(sha256=lambda data: SimpleNamespace(hexdigest=lambda: "0" * 16))
    )


def _any_name_will_do(patch):
    patch.setattr(operators, "_name_of", lambda shown: "alice")


def _who_may_look_may_do_all(patch):
    patch.setattr(operators, "_entry", lambda text: (text.partition(":")[0], ""))


def _what_hangs_stays(patch):
    patch.setattr(operators, "HANDSHAKES_MAX", 1_000_000)


def _nobody_is_limited(patch):
    patch.setattr(laws, "PATIENCE_S", 2.0)  # What the law waits for never comes.
    patch.setattr(operators.TokenBuckets, "take", lambda self, who, now_ns: True)
    patch.setattr(operators.TokenBucket, "take", lambda self, now_ns, tokens=1.0: True)


def _who_is_inside_stays(patch):
    patch.setattr(operators.OperatorDoor, "configure", lambda self, settings: setattr(self, "_settings", settings))


def _files_are_read_once(patch):
    patch.setattr(laws, "PATIENCE_S", 2.0)  # What the law waits for never comes.
    patch.setattr(operators, "_stamps", lambda settings: [])


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_any_name_will_do, laws.test_nobody_else_is_answered),
        (_who_may_look_may_do_all, laws.test_who_may_only_look_asks_nothing_that_changes),
        (_what_hangs_stays, laws.test_rubbish_and_hung_strangers_keep_no_operator_out),
        (_who_is_inside_stays, laws.test_a_name_that_goes_is_out_at_once_and_a_renewed_file_counts),
        (_files_are_read_once, laws.test_a_name_that_goes_is_out_at_once_and_a_renewed_file_counts),
    ],
)
def test_the_law_finds_the_fault(monkeypatch, tmp_path, fault, law):
    assert_found(fault, lambda: law(tmp_path, monkeypatch), monkeypatch)


@pytest.mark.parametrize(
    ("fault", "law"),
    [
        (_no_certificate_is_asked_for, laws.test_plain_text_no_certificate_and_older_tls_are_turned_away),
        (_nobody_is_limited, laws.test_who_knocks_too_often_is_hung_up_on_unseen),
    ],
)
def test_the_law_of_strangers_finds_the_fault(monkeypatch, tmp_path, fault, law):
    assert_found(fault, lambda: law(tmp_path), monkeypatch)
