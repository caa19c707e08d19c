"""A real worker process and pictures that are no pictures: small, giant once decoded, cut short, of other sides.

Each is refused with a sentence that names the form, whoever sent it; the worker stays small, and answers what comes
next.
"""

from pathlib import Path

import numpy as np
import pytest

from swarmd.worker import words
from swarmd.worker.hush import BAD_MAX
from swarmd.worker.lent import INFER, complaint_of, open_answer, pack_request
from swarmd.worker.oip import JSON_LENGTH, read_answer
from swarmd.worker.pictures import as_jpeg, differences
from swarmd_models.bundle import ZOO
from swarmd_models.service import DETECT
from tests.support.inference_worker import Worker, working
from tests.unit.test_picture_forms import BAD, HUGE, UNKNOWN, body

MOST_KB = 256 << 10
"""What the worker may hold with all of them behind it."""


def peak_kb(worker: Worker) -> int:
    lines = Path(f"/proc/{worker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def bombs() -> dict[str, tuple[bytes, int, str]]:
    """Body, length of its JSON part and form, by what is wrong with it."""
    found = {}
    for name, (image, data, form) in BAD.items():
        content, length = body(image[:0] if image is HUGE else image, data, form)
        if image is HUGE:
            content, length = content.replace(b"[0, 60000, 3]", b"[60000, 60000, 3]"), length + 4
        found[name] = content, length, form
    return found


def test_bombs_are_refused_by_the_name_of_their_form_and_the_next_request_is_answered() -> None:
    grey = np.load(ZOO / "small-320.golden.npz")["image"][..., None]
    path = "/v2/models/solar-tiny-224.detect/infer"
    with working(lends=True) as worker:
        digest = worker.load("zoo:tiny-224").digest
        client = worker.client()
        good = {
            form: body(grey, data, form)
            for form, data in (("", None), ("diff-br", differences(grey)), ("jpeg", as_jpeg(grey, 95)))
        }

        def ask(content: tuple[bytes, int]) -> tuple[int, object]:
            status, answer, tail = client.call("POST", path, content[0], {JSON_LENGTH: str(content[1])})
            return status, answer if status != 200 else np.frombuffer(tail, np.uint8).tolist()

        first = ask(good[""])
        assert first[0] == 200, first
        assert ask(good["diff-br"]) == first, "the same pixels, the same answer"
        assert ask(good["jpeg"])[0] == 200
        for name, (content, length, form) in bombs().items():
            status, answer = ask((content, length))
            assert status == 400, (name, answer)
            assert isinstance(answer, dict)
            assert ("known here" if form in UNKNOWN else form) in answer["error"], (name, answer)
        assert ask(good[""]) == first

        def lend(job: int, borrower: str, content: bytes, length: int) -> tuple[int, str]:
            data = pack_request(INFER, DETECT, length, content)
            worker.say(words.Lend(job, digest, data, 1, 20_000, False, borrower=borrower))
            while (ran := worker.hear(words.Ran)).job != job:
                pass
            assert ran.data is not None
            complaint = complaint_of(*open_answer(ran.data))
            if complaint is None:
                assert read_answer(*open_answer(ran.data)).keys()
                return 200, ""
            return complaint.status, str(complaint)

        hostile, honest = "ab" * 16, "cd" * 16
        said = [
            lend(at, hostile, content, length) for at, (content, length, _) in enumerate(bombs().values(), 1)
        ]  # fmt: skip
        assert [status for status, _ in said] == [400] * len(said)
        assert all("could not be" in text for _, text in said[BAD_MAX:]), "by then nothing of its is decoded"
        assert lend(100, honest, *good["jpeg"]) == (200, ""), "others are not its fault"
        assert lend(101, hostile, *good[""]) == (200, ""), "what needs no decoding is taken"
        counters = worker.counters()
        named = [one.borrower for one in worker.said if isinstance(one, words.Malformed)]
        assert named == [hostile] * BAD_MAX
        assert counters["forms_bad"] == BAD_MAX
        assert counters["forms_hushed"] == len(said) - BAD_MAX
        assert not counters.get("failed")
        assert ask(good[""]) == first
        assert peak_kb(worker) <= MOST_KB


@pytest.mark.parametrize("form", ["diff-br", "jpeg"])
def test_the_bombs_are_what_they_say(form: str) -> None:
    """Some hundred bytes or kilobytes each, and hundreds of megabytes or more behind them."""
    name = "a brotli bomb" if form == "diff-br" else "a giant JPEG under a small shape"
    content, _, said = bombs()[name]
    assert (said, len(content) < 64 << 10) == (form, True)
