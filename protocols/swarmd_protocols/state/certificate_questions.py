"""Whose certificates were asked for, of whom, and who else could be asked.

Where no node knows everybody, what an author says comes from several neighbours before its certificate does. Each of
them has it; one is enough.

Rules this file keeps:

- A certificate is asked for of one peer at a time: whoever brings more of that author meanwhile is asked next.
- Who does not answer within a few round trips is asked once; a peer that keeps a certificate back delays it by that.
- Everything is bounded: authors asked for, and peers remembered for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from swarmd_protocols.ids import NodeId
from swarmd_protocols.state.config import ReplicaConfig

ASKED_MAX = 256
"""Authors whose certificates have been asked for and may still come; of more, each who brings something is asked."""
OTHERS_MAX = 6
"""Peers that are remembered to be asked next: as many as a node in a partial view has, but for the first."""
PATIENCE = 3
"""In answer times of a batch (`ask_ns`): the question and the answer go as reliable frames."""


@dataclass(slots=True)
class _Question:
    asked: list[NodeId]
    """Who has been asked, the last one last."""
    at_ns: int
    """When the last one was."""
    others: list[NodeId] = field(default_factory=list)
    """Who brought something of the author since and can be asked next."""


class CertificateQuestions:
    """The open questions of one node."""

    def __init__(self, config: ReplicaConfig) -> None:
        """Nothing is asked."""
        self._patience_ns = PATIENCE * config.ask_ns
        self._open: dict[NodeId, _Question] = {}

    @property
    def has_open(self) -> bool:
        """Whether an answer is awaited."""
        return bool(self._open)

    def ask(self, peer: NodeId, authors: Sequence[NodeId], now_ns: int) -> list[NodeId]:
        """Which certificates to ask of a peer that has brought something of these authors."""
        now: list[NodeId] = []
        for author in authors:
            question = self._open.get(author)
            if question is None:
                if len(self._open) < ASKED_MAX:
                    self._open[author] = _Question([peer], now_ns)
                now.append(author)
            elif peer not in question.asked and peer not in question.others and len(question.others) < OTHERS_MAX:
                question.others.append(peer)
        return now

    def again(self, now_ns: int) -> dict[NodeId, list[NodeId]]:
        """Whom to ask now for what has not come, by peer; with nobody left a question is closed."""
        asks: dict[NodeId, list[NodeId]] = {}
        for author, question in list(self._open.items()):
            if now_ns - question.at_ns < self._patience_ns:
                continue
            if not question.others:
                del self._open[author]
                continue
            peer = question.others.pop(0)
            question.asked.append(peer)
            question.at_ns = now_ns
            asks.setdefault(peer, []).append(author)
        return asks

    def came(self, author: NodeId) -> None:
        """Its certificate is here."""
        self._open.pop(author, None)

    def expire(self, limit_ns: int) -> None:
        """What was asked before this is not awaited any more."""
        for author in [author for author, question in self._open.items() if question.at_ns < limit_ns]:
            del self._open[author]
