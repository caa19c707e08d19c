"""The digest that names a bundle: two bundles that could answer differently never share one.

It is the SHA-256 of one line of JSON over everything that decides an answer: the whole description as parsed, which
holds the checked SHA-256 of every file it names, and the labels as they are used, since a file of labels has no digest
in the description and a caller may give others. Layout, comments and the order of keys in the TOML do not count.

Two descriptions that mean the same in other words (`1` for `1.0`, a default written out) have different digests: a
device that is told apart from its like for nothing is safe, one that is taken for its like is not. The digest is of the
document rather than of what this version of the software reads in it, so nodes of different versions agree.

```
{"format":1,"kind":"bundle","labels":["a","b"],"toml":{…keys sorted…}}
{"format":1,"kind":"bare","labels":["a","b"],"sha256":"…"}      a bare model with other labels than its own
```

A bare model with its own labels is named by the SHA-256 of its file.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from swarmd_models.errors import ArtefactError

FORMAT = 1
"""Of the line that is hashed; another layout is another number, and golden vectors hold it (models/vectors/)."""


def digest_of_bundle(document: Mapping[str, Any], labels: Sequence[str]) -> str:
    """The digest of a bundle with a description, 64 hexadecimal digits.

    Args:
        document: The parsed TOML; the digests of files in it have been checked against the files.
        labels: As they are used.

    Raises:
        ArtefactError: The description nests too deeply, or holds too long a number, to be written down.

    >>> digest_of_bundle({"name": "m", "decoder": "yolo"}, ["a"]) == digest_of_bundle(
    ...     {"decoder": "yolo", "name": "m"}, ["a"]
    ... )
    True
    >>> digest_of_bundle({"name": "m"}, ["a", "b"]) == digest_of_bundle({"name": "m"}, ["b", "a"])
    False
    """
    return _hashed({"kind": "bundle", "toml": document, "labels": list(labels)})


def digest_of_bare(data: bytes, labels: Sequence[str] | None) -> str:
    """The digest of a model without a description.

    Args:
        data: The file.
        labels: Given instead of the file's own; None: the file's own.
    """
    own = hashlib.sha256(data).hexdigest()
    return own if labels is None else _hashed({"kind": "bare", "sha256": own, "labels": list(labels)})


def canonical(value: Mapping[str, Any]) -> bytes:
    """One line of JSON: keys sorted, no blanks, ASCII, floats in the shortest form that reads back the same.

    Raises:
        ArtefactError: It nests too deeply, or holds a number of thousands of digits.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=_moment)
    except RecursionError as error:
        raise ArtefactError("the bundle's description nests too deeply; a dozen levels are plenty") from error
    except ValueError as error:
        raise ArtefactError(f"the bundle's description holds a number that nothing means: {error}") from error
    return text.encode("ascii")


def _hashed(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical({"format": FORMAT, **value})).hexdigest()


def _moment(value: object) -> dict[str, str]:
    """TOML's dates and times, the only values that JSON lacks; none reads as the text of one."""
    assert isinstance(value, datetime.date | datetime.time)
    return {"\0moment": value.isoformat()}
