"""Templates to responses: everything that was stored is escaped, and a browser may load and run only what is ours."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import Response

from openclaw.page.measured import in_words
from openclaw.page.texts import visible

STATIC = Path(__file__).parent / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def page(template: str, status: int = 200, **values: Any) -> Response:
    """A rendered template as a response."""
    return Response(render(template, **values), status, HEADERS, "text/html; charset=utf-8")


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(values)


def span(seconds: float) -> str:
    """A length of time in words: `40 s`, `3 min`, `2 h`."""
    for size, unit in UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def when(at: float | None) -> Markup | str:
    """A moment as what it is: how long ago, and to the second for who asks."""
    if at is None:
        return "never"
    exact = datetime.fromtimestamp(at, UTC)
    return Markup('<time datetime="{}" title="{}">{} ago</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S UTC"), span(time.time() - at)
    )


def number(value: float | None, digits: int = 3) -> str:
    """A number for people; – where there is none."""
    if value is None:
        return "–"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e9 else f"{value:.{digits}g}"


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3g}"


@cache
def static_address(name: str) -> str:
    """The address of a file in static/, with what it holds in it, so that a browser may keep it for ever."""
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
