"""GET /docs: the OpenAPI document as one HTML page, which needs no scripts, network access or key."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from markupsafe import Markup
from starlette.responses import Response

Json = dict[str, Any]
router = APIRouter(include_in_schema=False)

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color-scheme: light dark }
details { border-top: 1px solid #8886; padding: .4rem 0 } summary { cursor: pointer } code, pre { font-size: 90% }
pre { overflow: auto; padding: .6rem; border: 1px solid #8886 } table { border-collapse: collapse }
td, th { text-align: left; vertical-align: top; padding: .1rem 1rem .1rem 0 } 
.verb { display: inline-block; min-width: 4.5rem }
"""
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
GROUPS = (
    ("Chat", "/v1"),
    ("Chat with the session id in the path", "/sessions"),
    ("Administration", "/admin"),
    ("Health", "/"),
)

_PAGE = Markup("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>API of OpenClaw-RL</title><style>{style}</style></head><body>
<h1>API of OpenClaw-RL {version}</h1>
<p>Base URL <code>{base}/v1</code>, model <code>{model}</code>. If the server requires a key, send
<code>Authorization: Bearer KEY</code>; below <code>/admin</code> the admin key. For programs:
<a href="openapi.json">openapi.json</a>. Unknown fields are ignored.</p>
<pre>curl -N {base}/v1/chat/completions -H 'Content-Type: application/json' \\
  -d '{{"stream": true, "messages": [{{"role": "user", "content": "hello"}}]}}'</pre>
{groups}</body></html>
""")
_GROUP = Markup("<h2>{}</h2>\n{}")
_ROUTE = Markup(
    '<details><summary><span class="verb">{}</span> <code>{}</code></summary><p>{}</p>{}</details>\n'
)
_ROW = Markup("<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>\n")


@router.get("/docs")
async def docs(request: Request) -> Response:
    """Returns the documentation page."""
    base = f"{request.url.scheme}://{request.headers.get('host', '')}"
    document = request.app.openapi()
    page = _PAGE.format(
        style=Markup(STYLE),
        version=document["info"]["version"],
        base=base,
        model=request.app.state.gateway.model_name,
        groups=Markup("").join(_groups(document)),
    )
    return Response(page, headers=HEADERS, media_type="text/html; charset=utf-8")


def _groups(document: Json) -> Iterator[Markup]:
    left = dict(document["paths"])
    for title, begins in GROUPS:
        paths = [path for path in left if path.startswith(begins)]
        group = [(path, left.pop(path)) for path in paths]
        yield _GROUP.format(title, Markup("").join(_routes(document, group)))


def _routes(document: Json, group: list[tuple[str, Json]]) -> Iterator[Markup]:
    for path, operations in group:
        for method, operation in operations.items():
            about = operation.get("description") or operation.get("summary", "")
            yield _ROUTE.format(method.upper(), path, about, _fields(document, operation))


def _fields(document: Json, operation: Json) -> Markup:
    """Returns the fields of a request as an HTML table."""
    rows = [
        _ROW.format(one["name"], _kind(one.get("schema", {})), f"in the {one['in']}")
        for one in operation.get("parameters", [])
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    body = _resolved(document, body)
    required = body.get("required", [])
    for name, schema in body.get("properties", {}).items():
        rows.append(_ROW.format(name, _kind(schema), "required" if name in required else ""))
    return Markup("<table>{}</table>").format(Markup("").join(rows)) if rows else Markup("")


def _resolved(document: Json, schema: Json) -> Json:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    resolved: Json = document["components"]["schemas"][name] if name else schema
    return resolved


def _kind(schema: Json) -> str:
    """Returns a short description of a JSON schema: types, allowed values, bounds."""
    choices = schema.get("oneOf") or schema.get("anyOf")
    if choices:
        return " or ".join(dict.fromkeys(_kind(one) for one in choices))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kinds = schema.get("type", "object")
    words = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    if kinds == "array":
        words = f"list of {_kind(schema.get('items', {}))}"
    least, most = schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum")
    if least is not None and most is not None:
        return f"{words}, {least} to {most}"
    return words if least is None else f"{words}, at least {least}"
