"""Single fields of a request body. Each raises ClientError that names the field; absent and null are the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from openclaw.errors import ClientError


def boolean(body: Mapping[str, Any], name: str, prefix: str = "") -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise wrong(prefix + name, "true or false")
    return bool(value)


def string(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise wrong(name, "a string")
    return value


def integer(body: Mapping[str, Any], name: str, least: int, most: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise wrong(name, f"a whole number from {least} to {most}")
    return value


def number(body: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise wrong(name, "a number")
    if not least <= value <= most:
        raise wrong(name, f"a number from {least:g} to {most:g}")
    return float(value)


def wrong(param: str, expected: str) -> ClientError:
    return ClientError(f"{param} must be {expected}", param)
