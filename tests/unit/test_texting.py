"""What a lender may say of a text that goes on."""

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from swarmd.cli import infer_text
from swarmd.worker import words
from swarmd.worker.asking import Wish
from swarmd.worker.batcher import Batcher, BatcherConfig
from swarmd.worker.borrowing import NobodyError
from swarmd.worker.elsewhere import Elsewhere, Found
from swarmd.worker.http_server import Call
from swarmd.worker.lent import METADATA, open_request, pack_answer
from swarmd.worker.oip import OipError, Wanted, write_answer
from swarmd.worker.residency import Residency
from swarmd.worker.texting import Texting, _tokens_of

END = 0


def said(tokens: object, dtype: str = "<i4", name: str = "tokens") -> Found:
    pieces, json_bytes = write_answer(
        {"model_version": "d" * 64}, {name: np.array(tokens, dtype)}, [Wanted(name, True)]
    )
    return Found(b"".join(pieces), json_bytes, "a", "d" * 64)


@pytest.mark.parametrize(
    ("found", "made"),
    [
        (said([5, 6, 7]), [5, 6, 7]),
        (said([5, END]), [5, END]),
        (said([5, 6]), []),
        (said([5, 6, 7, 8]), []),
        (said([]), []),
        (said([5, END, 7]), []),
        (said([5, 10, 7]), []),
        (said([5, -1, 7]), []),
        (said([5, 6, 7], "<i8"), []),
        (said([5.0, 6.0, 7.0], "<f4"), []),
        (said([[5, 6, 7]]), []),
        (said([5, 6, 7], name="margins"), []),
        (Found(b"{}", None, "a", "d" * 64), []),
        (Found(b"\xff", 1, "a", "d" * 64), []),
    ],
)
def test_only_what_was_asked_for_counts(found: Found, made: list[int]) -> None:
    """As many tokens of the vocabulary as were asked for, or fewer and the end: anything else counts against it."""
    assert _tokens_of(found, 3, 10, END) == made


DIGEST = "d" * 64
HONEST = ["<end>", "a", "b", " c"]


class Lenders:
    """Two lenders in the place of a brain that finds them: who describes the model, and who goes on with texts."""

    def __init__(self, told: dict[str, Any], tokens: list[int]) -> None:
        self.counters: Counter[str] = Counter()
        self.told, self.tokens = told, tokens
        self.described = 0
        self.wrong: list[str] = []
        self._by: dict[int, str] = {}
        self.left_ms: list[int] = []
        self.lost: list[bool] = []
        """Asks for tokens that have no answer, and whether somebody still offers the model."""

    async def ask(self, digest: str, data: bytes, units: int, left_ms: int, *_: object) -> words.Borrowed:
        self.left_ms.append(left_ms)
        lent = open_request(data)
        number = len(self._by) + 1
        if lent.what == METADATA:
            self._by[number] = "teller"
            self.described += 1
            said_json = msgspec.json.encode({"model_version": DIGEST, "parameters": self.told})
            return words.Borrowed(number, pack_answer([said_json], None), "teller", digest=DIGEST)
        if self.lost:
            raise NobodyError("no device has answered in time", may_retry=self.lost.pop(0))
        self._by[number] = "maker"
        found = said(self.tokens[:1])
        return words.Borrowed(number, pack_answer([found.body], found.json_bytes), "maker", digest=DIGEST)

    def judge(self, number: int, is_right: bool) -> None:
        if not is_right:
            self.wrong.append(self._by[number])


def texting_of(lenders: Lenders) -> Texting:
    device = SimpleNamespace(residency=Residency(lambda one: None), batcher=Batcher(BatcherConfig()), elsewhere=None)
    borrowing, run = cast(Any, lenders), cast(Any, None)
    device.elsewhere = Elsewhere(borrowing, None, device.batcher, device.residency, run)
    return Texting(cast(Any, device), 5_000)


def write(texting: Texting, text: str = "aab", **wishes: int) -> dict[str, Any]:
    body = bytearray(msgspec.json.encode({"text_input": text, "parameters": {"max_tokens": 1, **wishes}}))
    call = Call("POST", "", {"swarmd-borrow": "yes"}, body)
    answer = asyncio.run(texting.handle(call, "m.text", DIGEST, "generate"))
    row: dict[str, Any] = msgspec.json.decode(b"".join(answer.pieces))
    return row


def test_a_lie_about_a_models_words_costs_no_other_lender_its_name_and_ends() -> None:
    """Who tells a vocabulary of two words would have every honest lender's tokens count against that lender."""
    lenders = Lenders({"labels": ["<end>", "aab"], "window": 8, "end": "<end>"}, [3])
    texting = texting_of(lenders)
    with pytest.raises(OipError, match="say different things") as caught:
        write(texting)
    assert caught.value.status == 502
    assert lenders.wrong == []
    lenders.told = {"labels": HONEST, "window": 8, "end": "<end>"}
    assert write(texting)["text_output"] == " c", "what was told is asked again"
    assert lenders.described == 2


def test_a_models_words_may_take_as_long_to_come_as_the_text_and_tokens_only_a_turn() -> None:
    """Over a radio with 10 % loss the words took longer than a turn, and texts with a minute's time had no answer."""
    lenders = Lenders({"labels": HONEST, "window": 8, "end": "<end>"}, [3])
    write(texting_of(lenders), timeout=30_000_000)
    assert 20_000 < lenders.left_ms[0] <= 30_000
    assert lenders.left_ms[1] <= 5_000


def test_a_text_whose_first_ask_is_lost_begins_with_the_next() -> None:
    """Over a radio with 10 % loss texts with a minute's time were given up when their first turn was not answered."""
    lenders = Lenders({"labels": HONEST, "window": 8, "end": "<end>"}, [3])
    texting = texting_of(lenders)
    lenders.lost = [True, True]
    assert write(texting, timeout=30_000_000)["text_output"] == " c"
    assert texting.counters["text_asked_again"] == 2
    # By a time that a slow answer has raised, a lender may be able to none within one turn.
    assert [round(left_ms / 5_000) for left_ms in lenders.left_ms[1:]] == [1, 2, 4]
    for lost, asks in (([False], 1), ([True] * 20, 6)):
        lenders.lost, lenders.left_ms = list(lost), []
        with pytest.raises(OipError, match="no device has answered"):
            write(texting, timeout=30_000_000)
        assert len(lenders.left_ms) == asks, "refused at once where nobody offers it, and after six turns in any case"


def test_tokens_of_no_word_count_against_their_lender_once_another_has_borne_the_words_out() -> None:
    lenders = Lenders({"labels": HONEST, "window": 8, "end": "<end>"}, [3])
    texting = texting_of(lenders)
    write(texting)
    lenders.tokens = [4]
    with pytest.raises(OipError, match="were not what they said"):
        write(texting)
    assert set(lenders.wrong) == {"maker"}
    lenders.tokens = [2]
    assert write(texting)["text_output"] == "b"
    assert lenders.described == 1


def test_a_piece_of_a_vocabulary_that_is_told_is_short() -> None:
    """At each place of a prompt each length of a piece is tried: one of 16,384 held the worker up for minutes."""
    lenders = Lenders({"labels": ["<end>", "a", "b" * 129], "window": 8, "end": "<end>"}, [1])
    with pytest.raises(OipError, match="were not what they said"):
        write(texting_of(lenders))
    assert set(lenders.wrong) == {"teller"}


def test_nothing_that_a_lender_says_steers_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"text_output": "a\x1b]0;b\x07\n", "model_version": DIGEST, "parameters": {}}
    last = {**row, "text_output": "", "parameters": {"finish_reason": "stop", "tokens": 1}}
    monkeypatch.setattr(infer_text, "stream", lambda *asked, **wishes: iter([row, last]))
    wishes = SimpleNamespace(
        session=None, input="", prompt="a", max_tokens=1, temperature=0.0, seed=0, json=False
    )  # fmt: skip
    infer_text.run_text("", "m", Wish(), cast(Any, wishes))
    assert capsys.readouterr().out == "a?]0;b?\n\n"
