"""The small language model `events-text`: its vocabulary, net, training, scores and bundle. Needs the extra `train`.

A causal net over a window of tokens, so that a runtime that holds no state can run it: tokens in, the logits of what
follows each of them out. What it has learnt is scored on prompts that training never draws, by whole reports: one that
differs in a character is wrong.
"""

import hashlib
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from swarmd_models.backends import open_backend
from swarmd_models.backends.base import Artefact
from swarmd_models.texts import END, Going, TextNet, TextRule, Vocabulary
from swarmd_recipes import reports
from swarmd_recipes.export import forget_origin

NAME = "events-text"
WINDOW = 128
"""Tokens that the net sees: five lines and their report."""
WIDTH, LAYERS, HEADS = 64, 3, 4
SEED = 15
TRAIN, HELD_OUT = 40_000, 1_000
"""Drawn prompts."""
BATCH, STEPS = 32, 8_000
"""Samples of about the same length a step."""
_LEARNING_RATE = 3e-3
_WORDS = re.compile(r" ?[A-Za-z]+(?:-[a-z]+)*| ?[0-9]|[^A-Za-z0-9]")


def vocabulary() -> tuple[str, ...]:
    """Every word of the grammar, with and without a blank before it, digits, and single characters for names."""
    words = (
        {END: None} | {chr(code): None for code in range(32, 127)} | {"\n": None} | {f" {d}": None for d in range(10)}
    )
    rng = random.Random(SEED)
    for _ in range(4_000):
        lines = [one for one in reports.draw(rng) if one.origin.partition("-")[2] or not one.kind]
        lines = [one for one in lines if "-" in one.subject or one.kind not in reports.KINDS or not one.subject]
        if lines:
            for word in _WORDS.findall(f"{reports.prompt_of(lines)}{reports.ARROW} {reports.report_of(lines)}"):
                words[word] = None
    words[" =>"] = None
    return tuple(words)


class Block(nn.Module):  # type: ignore[misc]
    """Attention over what came before, and a layer a token."""

    def __init__(self) -> None:
        """At the file's width."""
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.middle = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any, mask: Any) -> Any:
        """Shape (n, tokens, WIDTH) to the same."""
        n, tokens, _ = x.shape
        q, k, v = self.qkv(self.before(x)).reshape(n, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        seen = torch.softmax(q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5 + mask[:tokens, :tokens], -1) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(n, tokens, WIDTH))
        return x + self.down(functional.gelu(self.up(self.middle(x)), approximate="tanh"))


class Net(nn.Module):  # type: ignore[misc]
    """Tokens to the logits of what follows each of them."""

    def __init__(self, tokens: int) -> None:
        """`tokens`: in the vocabulary."""
        super().__init__()
        self.embed = nn.Embedding(tokens, WIDTH)
        turns = torch.arange(WINDOW)[:, None] / 1e3 ** (torch.arange(WIDTH // 2) / (WIDTH / 2))
        self.place = nn.Parameter(0.1 * torch.cat([turns.sin(), turns.cos()], 1))
        self.last = nn.Linear(WIDTH, WIDTH, bias=False)
        """Of the token before: what follows a word can then be looked up by that word, which copying is made of."""
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.after = nn.LayerNorm(WIDTH)
        self.register_buffer("mask", torch.triu(torch.full((WINDOW, WINDOW), -1e4), 1), persistent=False)
        nn.init.normal_(self.embed.weight, std=0.05)

    def forward(self, tokens: Any) -> Any:
        """Shape (n, at most WINDOW), whole numbers, to (n, the same, vocabulary)."""
        x = self.embed(tokens)
        x = x + self.last(functional.pad(x, (0, 0, 1, 0))[:, :-1]) + self.place[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.mask)
        return self.after(x) @ self.embed.weight.T


def drawn(
    count: int, seed: int, words: Vocabulary, without: frozenset[str]
) -> tuple[list[list[int]], list[int], list[str]]:
    """Samples that fit the window: tokens, where each report begins, text; none whose prompt is in `without`."""
    rng = random.Random(seed)
    rows: list[list[int]] = []
    begins: list[int] = []
    texts: list[str] = []
    while len(rows) < count:
        lines = reports.draw(rng)
        prompt = reports.prompt_of(lines)
        if prompt in without:
            continue
        before = words.tokens_of(prompt + reports.ARROW)
        row = [*before, *words.tokens_of(" " + reports.report_of(lines)), words.end]
        if len(row) <= WINDOW:
            rows.append(row)
            begins.append(len(before))
            texts.append(f"{prompt}{reports.ARROW} {reports.report_of(lines)}")
    return rows, begins, texts


def _padded(rows: list[list[int]], begins: list[int], chosen: Any) -> tuple[Any, Any]:
    longest = max(len(rows[i]) for i in chosen)
    tokens, wanted = np.zeros((len(chosen), longest), np.int64), np.full((len(chosen), longest), -1, np.int64)
    for at, i in enumerate(chosen):
        row, begin = rows[i], begins[i]
        tokens[at, : len(row)] = row
        wanted[at, begin - 1 : len(row) - 1] = row[begin:]
    return torch.from_numpy(tokens), torch.from_numpy(wanted)


def train(words: Vocabulary, rows: list[list[int]], begins: list[int], steps: int, say: Callable[[str], None]) -> Net:
    """A net that has learnt; the loss is of the reports alone."""
    torch.manual_seed(SEED)
    net, rng = Net(len(words.pieces)), np.random.default_rng(SEED)
    best = torch.optim.AdamW(net.parameters(), _LEARNING_RATE, (0.9, 0.98), weight_decay=0.01)
    pace = torch.optim.lr_scheduler.OneCycleLR(best, _LEARNING_RATE, steps, pct_start=0.1)
    order, began = np.argsort([len(row) for row in rows], kind="stable"), time.monotonic()
    for step in range(steps):
        first = rng.integers(0, len(rows) - BATCH)
        tokens, wanted = _padded(rows, begins, order[first : first + BATCH])
        loss = functional.cross_entropy(net(tokens).flatten(0, 1), wanted.flatten(), ignore_index=-1)
        best.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        best.step()
        pace.step()
        if step % 100 == 0:
            say(f"{NAME}: step {step}, loss {loss.item():.4f}, {time.monotonic() - began:.0f} s")
    net.eval()
    return net


def export(net: Net, work: Path) -> tuple[Path, Path]:
    """The net over one whole window as LiteRT and as ONNX, float32."""
    import litert_torch

    sample = (torch.zeros(1, WINDOW, dtype=torch.int32),)
    tflite, onnx = work / f"{NAME}.tflite", work / f"{NAME}.onnx"
    litert_torch.convert(net, sample).export(str(tflite))
    torch.onnx.export(net, sample, str(onnx), input_names=["tokens"], output_names=["logits"], dynamo=True,
                      external_data=False, opset_version=18)  # fmt: skip
    forget_origin(onnx)
    return tflite, onnx


def scores(path: Path, words: Vocabulary, texts: list[str]) -> dict[str, Any]:
    """How often a file's report of a prompt it has not seen is right to the letter, and what it cost.

    Args:
        path: `.tflite` or `.onnx`.
        words: Its vocabulary.
        texts: Prompts with their reports, as `drawn` gives them.
    """
    artefact = Artefact(NAME, None, path) if path.suffix == ".onnx" else Artefact(NAME, path, None)
    backend = open_backend(artefact, ("litert", "onnx"), 1, print)
    net, right, tokens = TextNet(backend, words.pieces, TextRule(after=reports.ARROW)), 0, 0
    wrong: Counter[str] = Counter()
    began = time.process_time()
    for text in texts:
        prompt, wanted = text.split(reports.ARROW)
        row, made = words.tokens_of(prompt + reports.ARROW), list[int]()
        while words.end not in made and len(row) + len(made) < WINDOW:
            *_, outputs = net.run(Going((*row, *made), 8))
            assert outputs is not None
            made += outputs["tokens"].tolist()
        tokens += len(made)
        is_right = words.text_of(made) == wanted
        right += is_right
        wrong[str(len(prompt.splitlines()))] += not is_right
    took_s = time.process_time() - began
    backend.close()
    return {"n": len(texts), "right": right / len(texts), "wrong_by_lines": dict(sorted(wrong.items())),
            "cpu_ms_a_token": round(1e3 * took_s / tokens, 2)}  # fmt: skip


def make_text(work: Path, out: Path, say: Callable[[str], None], share: float = 1.0) -> None:
    """Train, export, score and write the bundle.

    Args:
        work: For the files on the way.
        out: Where the bundle goes.
        say: Told of progress.
        share: Of the usual data and steps.
    """
    words = Vocabulary(vocabulary())
    _, _, held_out = drawn(max(8, round(HELD_OUT * share)), SEED + 1, words, frozenset())
    seen = frozenset(text.split(reports.ARROW)[0] for text in held_out)
    rows, begins, texts = drawn(max(8 * BATCH, round(TRAIN * share)), SEED, words, seen)
    net = train(words, rows, begins, max(4, round(STEPS * share)), say)
    work.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    paths = export(net, work)
    found = {path.suffix[1:]: scores(path, words, held_out) for path in paths}
    say(f"{NAME}: {json.dumps(found)}")
    for path in paths:
        (out / path.name).write_bytes(path.read_bytes())
    data_sha256 = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    (out / f"{NAME}.toml").write_text(_bundle(words, paths, found, data_sha256), encoding="utf-8")


def _bundle(words: Vocabulary, paths: tuple[Path, ...], found: dict[str, Any], data_sha256: str) -> str:
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths]
    rows_of_eight = (words.pieces[at : at + 8] for at in range(0, len(words.pieces), 8))
    labels = ",\n".join("  " + ", ".join(map(json.dumps, row)) for row in rows_of_eight)
    rows = "\n".join(
        f"[provenance.scores.{kind}]\n" + "\n".join(f"{name} = {_toml(value)}" for name, value in one.items())
        for kind, one in found.items()
    )
    return f'''# Written by swarmd_recipes.text; docs/models.md says what the numbers mean.
format = 1
name = "{NAME}"
version = "1"
decoder = "text"
labels = [
{labels},
]

[model]
file = "{paths[0].name}"
sha256 = "{hashes[0]}"
onnx = "{paths[1].name}"
onnx_sha256 = "{hashes[1]}"

[text]
end = "{END}"
after = "\\n=>"

[provenance]
about = "events of a swarm to one sentence; taught and scored on prompts that a grammar draws, never on people's words"
recipe = "swarmd_recipes.text, seed {SEED}"
data = "swarmd_recipes.reports, {TRAIN} prompts"
data_sha256 = "{data_sha256}"
{rows}
'''


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {one}" for key, one in value.items()) + " }"
    return str(value)
