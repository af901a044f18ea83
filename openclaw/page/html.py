"""Renders templates: stored data is escaped, and a browser may load and run only this server's files."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response

from openclaw.common.visible import visible
from openclaw.http.browser import HEADERS

STATIC = Path(__file__).parent / "static"
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def page(template: str, status: int = 200, **values: Any) -> Response:
    """Returns a rendered template as a response."""
    return Response(render(template, **values), status, HEADERS, "text/html; charset=utf-8")


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def span(seconds: float) -> str:
    """Returns a duration in words: `40 s`, `3 min`, `2 h`."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def when(at: float | None) -> Markup | str:
    """Returns a time as its age, with the exact time as a tooltip."""
    if at is None:
        return "never"
    exact = datetime.fromtimestamp(at, UTC)
    return Markup('<time datetime="{}" title="{}">{} ago</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S UTC"), span(time.time() - at)
    )


def number(value: float | None, digits: int = 3) -> str:
    """Returns a number as text; – for None."""
    if value is None:
        return "–"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.{digits}g}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3g}"


@cache
def static_address(name: str) -> str:
    """Returns the URL of a file in static/, including a hash of its content, so that browsers can cache it for
    ever."""
    return f"/page/static/{name}?{hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]}"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("openclaw.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"when": when, "number": number, "signed": signed, "span": span, "visible": visible}
    environment.filters.update(filters | {"in_words": in_words})
    environment.globals["static"] = static_address
    return environment


MEANING = {
    "change": "how far the weights moved, as a share of their norm",
    "most_change": "how far they may move, as earlier updates have shown",
    "kl": "distance to the live weights on the newest answers, nats a token",
    "recent": "newest answers that this was measured on",
    "liked_loss": "by how much answers that people liked became less likely, nats a token",
    "liked": "liked answers that this was measured on",
    "looked": "1: it answered before it went live; 0: it did not have to",
    "answers": "answers that were looked at",
    "empty": "share of them that are empty",
    "endless": "share of them that do not end",
    "repeating": "share of them that repeat themselves",
    "other_script": "share of them in another script than the live ones",
    "same": "share of the commonest answer",
    "length": "their mean length, tokens",
    "surprise": "how unlikely its own tokens are to it, nats a token",
    "right": "share of the questions that it answers right",
    "questions": "questions that this was measured on",
    "obeyed": "share of the explicit wishes that it obeys",
    "wishes": "explicit wishes that this was measured on",
    "facts_kept": "share of facts of a pool that the model knew and still knows",
    "facts": "facts that this was measured on",
    "rejected": "1: the gate refused it",
    "seconds": "how long the examination took, seconds",
}
"""Descriptions of the gate's measurements, in the order of the stages. Others are shown only by name."""


def in_words(measurements: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """Returns `(name, value, meaning)`, described ones first."""
    known = [name for name in MEANING if name in measurements]
    others = sorted(set(measurements) - set(known))
    return [(name, measurements[name], MEANING.get(name, "")) for name in (*known, *others)]
