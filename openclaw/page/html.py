"""Renders templates. Stored data is escaped, and browsers load and run only files of this server."""

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
    """Returns a rendered template as an HTML response."""
    return Response(render(template, **values), status, HEADERS, "text/html; charset=utf-8")


def render(template: str, **values: Any) -> str:
    """Returns a rendered template."""
    return _environment().get_template(template).render(values)


def span(seconds: float) -> str:
    """Returns a rounded duration with its unit: `40 s`, `3 min`, `2 h`."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def when(at: float | None) -> Markup | str:
    """Returns a time as its age, with the exact time as a tooltip; "never" for None."""
    if at is None:
        return "never"
    exact = datetime.fromtimestamp(at, UTC)
    return Markup('<time datetime="{}" title="{}">{} ago</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S UTC"), span(time.time() - at)
    )


def number(value: float | None, digits: int = 3) -> str:
    """Returns a number as text, rounded to `digits` significant digits; – for None."""
    if value is None:
        return "–"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.{digits}g}"


def signed(value: float | None) -> str:
    """Returns a number with its sign as text; – for None."""
    return "–" if value is None else f"{value:+.3g}"


@cache
def static_address(name: str) -> str:
    """Returns the URL of a file in static/.

    It contains a hash of the content, so that browsers can cache the file permanently.
    """
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
    "change": "norm of the weight change, divided by the norm of the weights",
    "most_change": "limit of the weight change, from earlier updates",
    "kl": "KL divergence from the live weights on the newest answers, nats a token",
    "recent": "number of newest answers that the KL was measured on",
    "liked_loss": "decrease of the log-prob of answers that people liked, nats a token",
    "liked": "number of liked answers that the decrease was measured on",
    "looked": "1: the gate asked it questions before it went live; 0: it did not",
    "answers": "number of its answers to the questions",
    "empty": "share of its answers that are empty",
    "endless": "share of its answers that do not end",
    "repeating": "share of its answers that repeat themselves",
    "other_script": "share of its answers in another script than those of the live weights",
    "same": "share of the most frequent answer",
    "length": "mean length of its answers, tokens",
    "surprise": "mean negative log-prob of its own answers, nats a token",
    "right": "share of questions that it answers correctly",
    "questions": "number of these questions",
    "obeyed": "share of explicit requests about the form of an answer that it obeys",
    "wishes": "number of these requests",
    "facts_kept": "share of the facts known before training that it still knows",
    "facts": "number of these facts",
    "rejected": "1: the gate rejected it",
    "seconds": "duration of the gate's checks, seconds",
}
"""Descriptions of the gate's measurements, in the order of its stages. Other measurements have no description."""


def in_words(measurements: Mapping[str, Any]) -> list[tuple[str, Any, str]]:
    """Returns measurements as `(name, value, description)`; those with a description come first."""
    known = [name for name in MEANING if name in measurements]
    others = sorted(set(measurements) - set(known))
    return [(name, measurements[name], MEANING.get(name, "")) for name in (*known, *others)]
