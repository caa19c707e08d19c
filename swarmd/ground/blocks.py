"""How a block of the history is packed: what differs from an earlier picture, and changes as columns of differences.

    [rows, tables, others], msgpack, deflate
    rows      kind -> id -> row, or nil where the earlier picture had it and this one has not
    table     one kind of row: names of its fields, ids, and a column for each field, a value for each change
    value     an integer: so much more than the same thing's value before it, in units of the column's last decimal
              (0: the same, of whatever type); else [value]
    others    changes that no table takes: what went, and rows that are no plain object

A drone that flies changes its place by a few centimetres and most of its other fields not at all, so a change takes
some 15 bytes where its row takes 300. Nothing is lost: what would not come back to the byte is kept as it is.
"""

import math
import zlib
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, TypeAlias

import msgspec

Rows: TypeAlias = Mapping[str, Mapping[str, bytes]]
"""Rows by kind and id, as `Picture.frozen` gives them."""
DECIMALS = (0, 1, 2, 3, 4, 6, 8)
"""Decimals that a column may have: a WGS 84 coordinate has eight."""
_EXACT = 1 << 53
"""Integers that a float holds exactly are smaller."""
_json, _read = msgspec.json.encode, msgspec.json.decode
_Told: TypeAlias = tuple[int, float, str, str, bytes | None]


class Block(msgspec.Struct):
    """A picture, and what changed after it: (number, moment, kind, id, row)."""

    rows: Rows
    changes: list[_Told]


class _Table(msgspec.Struct, array_like=True):
    kind: str
    names: list[str]
    ids: list[str]
    which: list[int]
    """Of each change, whose it is: a place in `ids`."""
    places: list[int]
    """Of each change, its place in the block, as difference to the one before."""
    numbers: list[int]
    """Its number, as difference to the one before."""
    decimals: list[int]
    """Of the moments, then of each column."""
    moments: list[Any]
    columns: list[list[Any]]


class _Packed(msgspec.Struct, array_like=True):
    rows: dict[str, dict[str, bytes | None]]
    tables: list[_Table]
    others: list[tuple[int, _Told]]


_PACKED = msgspec.msgpack.Decoder(_Packed)


def changed(base: Rows, rows: Rows) -> dict[str, dict[str, bytes | None]]:
    """What differs between an earlier picture and a later one; nil of what is gone."""
    found: dict[str, dict[str, bytes | None]] = {}
    for kind, held in rows.items():
        before = base.get(kind, {})
        mine: dict[str, bytes | None] = {name: row for name, row in held.items() if before.get(name) != row}
        mine |= dict.fromkeys(before.keys() - held.keys())
        if mine:
            found[kind] = mine
    return found


def pack(rows: Mapping[str, Mapping[str, bytes | None]], changes: list[_Told]) -> bytes:
    """The block's bytes.

    Args:
        rows: Of the picture at its beginning, or as `changed` tells them.
        changes: What changed after it, in order.
    """
    tables: dict[tuple[str, ...], list[tuple[int, _Told, dict[str, Any]]]] = {}
    others: list[tuple[int, _Told]] = []
    for place, told in enumerate(changes):
        row = told[4]
        read = None if row is None else _read(row)
        if isinstance(read, dict) and read and _json(read) == row:
            tables.setdefault((told[2], *read), []).append((place, told, read))
        else:
            others.append((place, told))
    packed = _Packed(
        {kind: dict(held) for kind, held in rows.items()}, [_table(k, v) for k, v in tables.items()], others
    )
    return zlib.compress(msgspec.msgpack.encode(packed), 1)


def unpack_rows(data: bytes) -> dict[str, dict[str, bytes]]:
    """The picture of a block that holds a whole one."""
    packed = _PACKED.decode(zlib.decompress(data))
    return {kind: {name: row for name, row in held.items() if row is not None} for kind, held in packed.rows.items()}


def unpack(data: bytes, base: Rows, until_s: float | None = None) -> Block:
    """A block out of its bytes.

    Args:
        data: What `pack` gave.
        base: The earlier picture that its rows differ from; empty where they are a whole one.
        until_s: Tell of each thing only its last change up to then, where nothing else is asked for: that is most of
            the work.
    """
    packed = _PACKED.decode(zlib.decompress(data))
    rows = {kind: dict(held) for kind, held in base.items()}
    for kind, held in packed.rows.items():
        mine = rows.setdefault(kind, {})
        for name, row in held.items():
            if row is None:
                mine.pop(name, None)
            else:
                mine[name] = row
    changes: list[tuple[int, _Told]] = list(packed.others)
    for table in packed.tables:
        changes += _untable(table, until_s)
    changes.sort(key=lambda one: one[0])
    return Block(rows, [told for _, told in changes])


def _table(key: tuple[str, ...], found: list[tuple[int, _Told, dict[str, Any]]]) -> _Table:
    kind, *names = key
    ids: dict[str, int] = {}
    which = [ids.setdefault(told[3], len(ids)) for _, told, _ in found]
    nobody = [0] * len(found)
    decimals, moments = _column(nobody, [told[1] for _, told, _ in found])
    places, numbers = _steps([place for place, _, _ in found]), _steps([told[0] for _, told, _ in found])
    table = _Table(kind, names, list(ids), which, places, numbers, [decimals], moments, [])
    for name in names:
        decimals, column = _column(which, [row[name] for _, _, row in found])
        table.decimals.append(decimals)
        table.columns.append(column)
    return table


def _untable(table: _Table, until_s: float | None) -> list[tuple[int, _Told]]:
    count = len(table.which)
    moments = _uncolumn([0] * count, table.decimals[0], table.moments)
    if until_s is not None:  # What comes after is not worked out.
        count = max((index + 1 for index, at_s in enumerate(moments) if at_s <= until_s), default=0)
    columns = [
        _uncolumn(table.which[:count], decimals, column[:count])
        for decimals, column in zip(table.decimals[1:], table.columns, strict=True)
    ]
    places, numbers = list(accumulate(table.places)), list(accumulate(table.numbers))
    chosen: Iterable[int] = range(count)
    if until_s is not None:
        chosen = {one: index for index, one in enumerate(table.which[:count]) if moments[index] <= until_s}.values()
    found: list[tuple[int, _Told]] = []
    for index in chosen:
        row = _json({name: column[index] for name, column in zip(table.names, columns, strict=True)})
        told = (numbers[index], moments[index], table.kind, table.ids[table.which[index]], row)
        found.append((places[index], told))
    return found


def _steps(values: list[int]) -> list[int]:
    return [after - before for before, after in zip([0, *values], values, strict=False)]


def _column(which: list[int], values: list[Any]) -> tuple[int, list[Any]]:
    """(decimals, values as differences to the same thing's value before)."""
    decimals = _decimals(values)
    scale = 10**decimals
    last: dict[int, Any] = {}
    column: list[Any] = []
    for one, value in zip(which, values, strict=True):
        before = last.get(one, last)  # Itself stands for nothing: no value is this dictionary.
        last[one] = value
        if _same(value, before):
            column.append(0)
        elif type(value) is type(before) is float and _scales(value, scale) and _scales(before, scale):
            column.append(round(value * scale) - round(before * scale))
        else:
            column.append([value])
    return decimals, column


def _uncolumn(which: list[int], decimals: int, column: list[Any]) -> list[Any]:
    scale = 10**decimals
    last: dict[int, Any] = {}
    values: list[Any] = []
    for one, step in zip(which, column, strict=True):
        if type(step) is list:
            last[one] = step[0]
        elif step:
            last[one] = (round(last[one] * scale) + step) / scale
        values.append(last[one])
    return values


def _decimals(values: list[Any]) -> int:
    """The fewest in which all numbers of a column are exact; the most where some are not."""
    floats = [value for value in values if type(value) is float]
    for decimals in DECIMALS[:-1]:
        scale = 10**decimals
        if all(_scales(value, scale) for value in floats):
            return decimals
    return DECIMALS[-1]


def _scales(value: float, scale: int) -> bool:
    """Whether a number comes back exactly out of an integer of its last decimal: the division rounds correctly."""
    if not abs(value) * scale < _EXACT or (value == 0 and math.copysign(1.0, value) < 0):
        return False
    return round(value * scale) / scale == value


def _same(value: Any, before: Any) -> bool:
    """Whether two values are written the same."""
    if type(value) is not type(before) or value != before:
        return False
    return type(value) in (str, int, bool, type(None)) or _json(value) == _json(before)
