"""The contract through which membership, state and releases ask who counts; `Trust` keeps it.

    trust.revision                     rises whenever an answer given earlier may be another one: a root, a
                                       revocation, a certificate that replaces one. Not for the first certificate of a
                                       stranger: nobody can have been judged by it.
    trust.news.count                   rises with whatever was news, that first certificate included
    trust.certified(node)              the certificate of that node that holds now; None for strangers, for revoked and
                                       replaced ones, and for certificates that the newest root does not stand behind
    trust.revoked                      ids of the nodes that are shut out, not only left without a certificate
    trust.admit_certificate(bytes)     verify one from outside and keep it: the best of each node, the best of each name
    trust.certificate_statement(node)  its bytes, so that it can travel with what the node has said
    trust.chain.admit(envelope)        verify a role-signed statement: the envelope with the signatures that hold
    trust.chain.counts(envelope)       whether one that was verified counts under the newest root
    trust.add("root", bytes)           hand over a root that came along

A certificate that is admitted is journalled by `Node` and is there before sub-protocols are made: build the trust
with `open_trust(identity, records, crypto)`, give it to those that ask and to `Node(..., trust=trust)`. A certificate
that replaced another is itself a statement of the trust lattice and spreads with it, so nodes that know only the old
one learn that it is void. `Node` calls `on_trust(now_ns)` of every sub-protocol that has it, after the revision rose
(at the start, by command, from the air) and before it spreads a new group key.
"""

from typing import Protocol

from swarmd_protocols.ids import NodeId
from swarmd_protocols.trust.news import News
from swarmd_protocols.trust.payloads import Certificate
from swarmd_protocols.trust.roots import RootChain


class TrustView(Protocol):
    """What a sub-protocol may ask."""

    @property
    def swarm(self) -> str:
        """The swarm's name."""
        ...

    @property
    def revision(self) -> int:
        """Rises whenever what counts changes."""
        ...

    @property
    def news(self) -> News:
        """What came and went of late; only to be looked at."""
        ...

    @property
    def revoked(self) -> frozenset[bytes]:
        """Ids of the nodes that are shut out."""
        ...

    @property
    def chain(self) -> RootChain:
        """Who may say what; only to be asked, and extended by `add` alone."""
        ...

    def statements(self) -> list[tuple[str, bytes]]:
        """(kind, statement) of all that a peer may lack, group keys included, in an order in which it can be taken."""
        ...

    def add(self, kind: str, statement: bytes) -> bool:
        """Take a statement of trust from anywhere; whether it was new.

        Raises:
            IdentityError: It does not hold.
        """
        ...

    def certified(self, node: NodeId) -> Certificate | None:
        """The certificate of a node that holds under the trust in force."""
        ...

    def admit_certificate(self, statement: bytes) -> Certificate:
        """Verify a certificate from outside and keep it; of one node, the best is returned.

        Raises:
            IdentityError: It does not hold, its node is revoked, or its name belongs to a newer key.
        """
        ...

    def certificate_statement(self, node: NodeId) -> bytes | None:
        """The bytes of `certified(node)`."""
        ...
