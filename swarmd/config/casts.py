"""`transport.casts`: what it may be."""

_NAME_BYTES = 15
"""Longest name of an interface. Source: `IFNAMSIZ` of linux/if.h, less the zero at the end."""
_MEANT = {
    **dict.fromkeys(("no", "false", "0", "none", "never", "off"), "off"),
    **dict.fromkeys(("yes", "true", "1", "on", "auto"), "auto"),
}


def casts_problem(text: str) -> str:
    """What is wrong with it, or "": a word that says yes or no is hardly an interface.

    >>> [casts_problem(text) for text in ("auto", "off", "wlan0")]
    ['', '', '']
    >>> casts_problem("no")
    "'no'; write off"
    >>> casts_problem("")
    "''; write off, auto, or one interface, such as wlan0"
    >>> casts_problem("wlan0 eth0")
    "'wlan0 eth0', no name of an interface; write off, auto, or one interface, such as wlan0"
    """
    if text in ("auto", "off"):
        return ""
    meant = _MEANT.get(text.lower())
    if meant:
        return f"{text!r}; write {meant}"
    hint = "write off, auto, or one interface, such as wlan0"
    if not text:
        return f"{text!r}; {hint}"
    is_name = len(text.encode()) <= _NAME_BYTES and text not in (".", "..")
    if is_name and not any(sign.isspace() or sign in "/:" for sign in text):  # As the kernel's `dev_valid_name`.
        return ""
    return f"{text!r}, no name of an interface; {hint}"
