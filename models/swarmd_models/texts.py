"""Language models: a net that says which token may follow, and what makes texts of it.

The bundle's labels are its vocabulary, one piece of text a token. The graph takes a window of tokens, shape (1,
window), and gives the logits of what follows each of them, (1, window, vocabulary); it holds no state, so what a text
needs to go on is its tokens, and any device with the bundle can go on with it. A token depends on the tokens before it,
the seed and its place alone: two devices say the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarmd_models.backends.base import Array, Backend
from swarmd_models.errors import ArtefactError, BackendError, FrameError
from swarmd_models.toml_reader import TomlReader

if TYPE_CHECKING:
    pass

END = "<end>"
"""What a vocabulary calls the end of a text where the bundle says nothing else."""
STEPS_MAX = 64
"""Tokens of one run: what one request may have of inferences."""
HEAT_MAX = 10.0
"""Temperature; above it any token is as good as another."""
TEXT_MAX_CHARS = 16_384
"""Of one prompt: a window has some hundred tokens."""
_WINDOW_MAX = 8_192
_KINDS = ("int32", "int64", "float32")
"""Types of tokens that a graph may take."""


@dataclass(frozen=True, slots=True)
class TextRule:
    """How a language model is asked."""

    end: str = END
    """The piece that ends a text."""
    after: str = ""
    """Put behind what a program sends, before the model goes on."""


def read_text_rule(table: TomlReader) -> TextRule:
    """The table `[text]` of a bundle."""
    return TextRule(table.text("end", END), table.text("after", ""))


class Vocabulary:
    """Texts to tokens and back."""

    def __init__(self, pieces: Sequence[str], end: str = END) -> None:
        """Prepare.

        Args:
            pieces: Of each token its text.
            end: The one that ends a text.

        Raises:
            ArtefactError: There is no such piece.
        """
        if end not in pieces:
            raise ArtefactError(f"the vocabulary has no piece {end!r}, which is to end a text")
        self.pieces = tuple(pieces)
        self.end = self.pieces.index(end)
        self._numbers = {piece: number for number, piece in enumerate(pieces) if piece and number != self.end}
        self._longest = max(map(len, self._numbers), default=0)

    def tokens_of(self, text: str) -> list[int]:
        """The tokens of a text, the longest piece first; raises `FrameError` for what no piece says.

        >>> Vocabulary(["<end>", "a", "b", "ab"]).tokens_of("aab")
        [1, 3]
        """
        found, at = [], 0
        while at < len(text):
            for length in range(min(self._longest, len(text) - at), 0, -1):
                number = self._numbers.get(text[at : at + length])
                if number is not None:
                    found.append(number)
                    at += length
                    break
            else:
                raise FrameError(f"the model has no word for {text[at]!r} (character {at} of the text)")
        return found

    def text_of(self, tokens: Sequence[int]) -> str:
        """What tokens say; the end says nothing."""
        return "".join(self.pieces[token] for token in tokens if token != self.end)


@dataclass(frozen=True, slots=True)
class Going:
    """How a text goes on."""

    tokens: tuple[int, ...]
    """What there is, 1 to the window."""
    steps: int = 1
    """Tokens that are wanted, 1 to `STEPS_MAX`."""
    seed: int = 0
    """Of the first of them; each further one has the next."""
    temperature: float = 0.0
    """0: always the likeliest token; 1: by the net's own odds."""


class TextNet:
    """A language model in a runtime."""

    def __init__(self, backend: Backend, labels: Sequence[str], rule: TextRule) -> None:
        """Take a loaded model.

        Raises:
            ArtefactError: It is no net of a window of tokens, or its vocabulary is another.
        """
        self.words = Vocabulary(labels, rule.end)
        self._backend = backend
        taken, given = backend.inputs[0], backend.outputs[0]
        self.window = taken.shape[-1]
        is_window = len(backend.inputs) == 1 and len(taken.shape) == 2 and 2 <= self.window <= _WINDOW_MAX
        if not is_window or taken.dtype.name not in _KINDS or given.dtype.name != "float32":
            raise ArtefactError(
                f"a text model takes one tensor of tokens, shape (1, window), of {', '.join(_KINDS)}, and gives "
                f"float32 logits; this one takes {[(one.dtype.name, one.shape) for one in backend.inputs]} and gives "
                f"{given.dtype.name} (export it with a fixed window and without a cache)"
            )
        if given.shape != (1, self.window, len(labels)):
            raise ArtefactError(
                f"the logits have shape {given.shape}; a window of {self.window} and a vocabulary of {len(labels)} "
                f"labels make {(1, self.window, len(labels))}"
            )

    def run(self, going: Going) -> "Iterator[Mapping[str, Array] | None]":
        """A token a step, then the outputs: `tokens`, int32, those that were found, and `margins`, float32.

        A token's margin is how far it was ahead of the next best, in logits: two devices whose runtimes round
        otherwise may differ where it is small. After the end nothing is run any more.

        Raises:
            FrameError: The tokens are none, or too many.
            BackendError: The runtime failed, or gave numbers that are none.
        """
        import numpy as np

        judge(going, len(self.words.pieces), self.window)
        row = list(going.tokens)
        found: list[int] = []
        margins: list[float] = []
        for step in range(going.steps):
            if not found or found[-1] != self.words.end:
                token, margin = choose(self._logits(row), going.seed + step, going.temperature)
                row.append(token)
                found.append(token)
                margins.append(margin)
            yield None
        yield {"tokens": np.array(found, np.int32), "margins": np.array(margins, np.float32)}

    def _logits(self, row: list[int]) -> "Array":
        import numpy as np

        seen = row[-self.window :]
        view = self._backend.input_view()
        view[...] = 0
        view[: len(seen)] = seen
        del view  # No view may outlive this line: `infer` would be refused.
        self._backend.infer()
        logits = np.array(self._backend.output_views()[0][len(seen) - 1], np.float64)
        if not np.isfinite(logits).all():
            raise BackendError("the model gave numbers that are none")
        return logits


def judge(going: Going, words: int, window: int) -> None:
    """Whether a net can go on so; raises `FrameError`."""
    if not 1 <= len(going.tokens) <= window or not all(0 <= token < words for token in going.tokens):
        raise FrameError(f"{len(going.tokens)} tokens: 1 to {window} are wanted, each within 0 and {words - 1}")
    if not 1 <= going.steps <= STEPS_MAX or not 0.0 <= going.temperature <= HEAT_MAX or going.seed < 0:
        raise FrameError(f"1 to {STEPS_MAX} steps, a seed from 0 and a temperature of 0 to {HEAT_MAX:g} are wanted")


def choose(logits: "Array", seed: int, temperature: float) -> tuple[int, float]:
    """The token that follows, and how far it was ahead of the next best.

    Args:
        logits: Shape (vocabulary,), finite.
        seed: Decides the draw.
        temperature: 0: the likeliest, without a draw.

    Source:
        Gumbel, "Statistical Theory of Extreme Values" (1954): the largest of logits + Gumbel noise is a draw by their
        softmax. The noise is made of a bit generator's raw numbers, which NumPy keeps the same between versions
        (NEP 19).
    """
    import numpy as np

    if temperature > 0.0:
        raw = np.random.PCG64(seed).random_raw(len(logits)).astype(np.float64)
        logits = logits / temperature - np.log(-np.log((raw + 0.5) / 2.0**64))
    token = int(np.argmax(logits))
    others = np.delete(logits, token)
    return token, float(logits[token] - others.max()) if len(others) else 0.0
