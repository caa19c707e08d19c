"""Which of the standing alerts tells people why a node is out because of keys."""

OUT_CODES = ("revoked", "replaced", "not-certified")
"""Codes of `swarmd.events.kinds.ALERTS`; one of them stands while `Trust.why_out` says something."""


def out_code(why_out: str) -> str:
    """The code for what `Trust.why_out` says; "" where the node is heard.

    >>> [out_code(text) for text in ("revoked: lost", "replaced: its name", "without a certificate: root 2", "")]
    ['revoked', 'replaced', 'not-certified', '']
    """
    if not why_out:
        return ""
    return next((code for code in OUT_CODES if why_out.startswith(code)), OUT_CODES[-1])
