"""Serves the sites of tasks from this process. It acts as the browser's proxy, so pages have no other network.

An episode is identified by a header that its browser context sends, or by an address that only it uses. The state
that its pages store (`set` and `add` of site.js) is kept here, separately for each episode; evaluators read it.
"""

from __future__ import annotations

import json
import mimetypes
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from aiohttp import web

MADE_HOST = "pages.test"
"""Host name of the pages that a task describes itself."""
SITES = Path(__file__).parents[2] / "sites"
HEADER = "X-Episode"
MOST_BYTES = 256 * 1024  # most bytes of one episode's state


@dataclass
class Visit:
    """The sites' record of one episode.

    Attributes:
        made: pages of `MADE_HOST`, by number.
        state: data that pages have stored.
        opened: addresses of the requested pages, in order.
        full: a change was refused, because the state would have become too large; the state is then incomplete.
    """

    made: Sequence[dict[str, Any]] = ()
    state: dict[str, Any] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    full: bool = False
    token: str = field(default_factory=lambda: secrets.token_hex(16))


class SiteServer:
    """Serves the sites on a free local port."""

    def __init__(self, sites: Path = SITES) -> None:
        self.sites = sites.resolve()
        self.visits: dict[str, Visit] = {}
        self._own: dict[str, web.ServerRunner] = {}
        self._runner: web.ServerRunner | None = None
        self.address = ""

    async def start(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._answer), access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def begin(self, made: Sequence[dict[str, Any]] = ()) -> Visit:
        visit = Visit(made)
        self.visits[visit.token] = visit
        return visit

    def end(self, visit: Visit) -> None:
        self.visits.pop(visit.token, None)

    async def open_for(self, visit: Visit, socket: Path | None = None) -> str:
        """Opens an address, or a Unix socket, for one episode with its own browser, and returns it. `close_for`
        closes it."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return await self._serve(request, visit)

        runner = web.ServerRunner(web.Server(answer), access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        self._own[visit.token] = runner
        if socket is not None:
            await web.UnixSite(runner, str(socket)).start()
            return str(socket)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def close_for(self, visit: Visit) -> None:
        """Closes the address; can be repeated."""
        if (runner := self._own.pop(visit.token, None)) is not None:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        visit = self.visits.get(request.headers.get(HEADER, ""))
        if visit is None:
            return web.Response(status=403, text="for pages of an episode")
        return await self._serve(request, visit)

    async def _serve(self, request: web.BaseRequest, visit: Visit) -> web.StreamResponse:
        if request.path == "/_/state":
            return await self._state(request, visit)
        if request.method != "GET":
            return web.Response(status=405, text="only GET")
        host = request.host.partition(":")[0]
        if request.path in ("/_/site.js", "/_/site.css"):
            return _sent(self.sites / request.path.rpartition("/")[2])
        visit.opened.append(f"http://{host}{request.path}")
        page = request.path.strip("/") or "0"
        if host == MADE_HOST and page.isdecimal() and int(page) < len(visit.made):
            return web.Response(text=made_page(visit.made[int(page)]), content_type="text/html")
        return self._file(host, request.path)

    def _file(self, host: str, path: str) -> web.StreamResponse:
        folder = self.sites / host
        if "/" in host or host.startswith(".") or not folder.is_dir():
            return web.Response(status=502, text=f"{host}: there is no such site")
        file = (folder / (path.strip("/") or "index.html")).resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            return web.Response(status=404, text="not found")
        return _sent(file)

    async def _state(self, request: web.BaseRequest, visit: Visit) -> web.Response:
        if request.method == "POST":
            if request.headers.getall("Origin", []) != [f"http://{request.host}"]:
                return web.Response(status=403, text="for the site's own pages")
            try:
                change = json.loads(await request.text())
                changed = {**visit.state, **change.get("set", {})}
                for name, value in change.get("add", {}).items():
                    changed[name] = [*changed.get(name, []), value]
            except (ValueError, AttributeError, TypeError):
                return web.Response(status=400, text="no change of the state")
            if len(json.dumps(changed)) > MOST_BYTES:
                visit.full = True
                return web.Response(status=413, text="the state is full")
            visit.state = changed
        return web.json_response(visit.state)


def _sent(file: Path) -> web.Response:
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return web.Response(body=file.read_bytes(), content_type=kind, charset="utf-8")


STYLE = "font: 16px sans-serif; margin: 12px {left}px"
ROW = "margin: {gap}px 0"
TILE = (
    "position: absolute; left: {left}px; top: {top}px; width: {size}px; height: {size}px; padding: 0; {shape}"
)
BORDER = 20
"""Border width of hollow tiles, in pixels."""
SHAPES = {
    "square": "border: 0; background: {colour}",
    "disc": "border: 0; border-radius: 50%; background: {colour}",
    "frame": "box-sizing: border-box; border: {border}px solid {colour}; background: none",
    "ring": "box-sizing: border-box; border: {border}px solid {colour}; border-radius: 50%; background: none",
}
"""CSS of tile shapes."""


def made_page(spec: dict[str, Any]) -> str:
    """Returns a page as HTML.

    Args:
        spec: {"title", "left", "gap", "widgets": [{"kind", "name"}]}, margins in pixels; or {"title", "colour",
            "tiles": [{"name", "shape", "colour", "left", "top", "size"}]}, places and sizes in pixels, CSS colours. A
            tile is a button without a visible name.
    """
    title = escape(spec["title"])
    if "tiles" in spec:
        style = f"margin: 0; background: {escape(spec['colour'])}"
        body = "".join(_tile(**tile) for tile in spec["tiles"])
    else:
        style = STYLE.format(left=int(spec["left"]))
        row = ROW.format(gap=int(spec["gap"]))
        rows = "".join(f'<div style="{row}">{_widget(**widget)}</div>' for widget in spec["widgets"])
        body = f"<h3>{title}</h3>{rows}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><script src="/_/site.js"></script>'
        f'<body style="{style}">{body}<script>keepWidgets()</script></body></html>'
    )


def _tile(name: str, shape: str, colour: str, left: int, top: int, size: int) -> str:
    if shape not in SHAPES:
        raise ValueError(f"there is no tile {shape!r}")
    drawn = SHAPES[shape].format(colour=escape(colour), border=BORDER)
    style = TILE.format(left=int(left), top=int(top), size=int(size), shape=drawn)
    return f'<button type=button data-name="{escape(name)}" style="{style}"></button>'


def _widget(kind: str, name: str) -> str:
    name = escape(name)
    match kind:
        case "button":
            return f"<button type=button>{name}</button>"
        case "link":
            return f'<a href="/1">{name}</a>'
        case "textbox":
            return f"<label>{name} <input autocomplete=off size=12></label>"
        case "checkbox" | "radio":
            return f"<label><input type={kind} name={kind}>{name}</label>"
        case _:
            raise ValueError(f"there is no widget {kind!r}")
