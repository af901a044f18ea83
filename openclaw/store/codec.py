"""Columns <-> Python: JSON compressed by zlib, ids as int32, log-probs as float64 (all little-endian).

float64 keeps every log-prob exactly as the engine's JSON had it.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Sequence
from typing import Any

import orjson

_COMPRESS_FROM = 256
"""Bytes; shorter JSON is stored as it is (it starts with no zlib header byte)."""
_ZLIB_HEADER = 0x78
_LEVEL = 1


def pack_json(value: Any) -> bytes:
    """JSON bytes, compressed when long. Raises TypeError for what JSON cannot hold."""
    data = orjson.dumps(value)
    return zlib.compress(data, _LEVEL) if len(data) >= _COMPRESS_FROM else data


def unpack_json(data: bytes) -> Any:
    return orjson.loads(zlib.decompress(data) if data[0] == _ZLIB_HEADER else data)


def pack_ids(ids: Sequence[int]) -> bytes:
    """Token ids [T] as compressed int32. Raises OverflowError for an id that does not fit."""
    return zlib.compress(_little_endian(array("i", ids)).tobytes(), _LEVEL)


def unpack_ids(data: bytes) -> list[int]:
    return _from_bytes("i", zlib.decompress(data)).tolist()


def pack_floats(values: Sequence[float]) -> bytes:
    return _little_endian(array("d", values)).tobytes()


def unpack_floats(data: bytes) -> list[float]:
    return _from_bytes("d", data).tolist()


def _little_endian(values: array[Any]) -> array[Any]:
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _from_bytes(typecode: str, data: bytes) -> array[Any]:
    values: array[Any] = array(typecode)
    values.frombytes(data)
    return _little_endian(values)
