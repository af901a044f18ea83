"""Puts the page into an app."""

from __future__ import annotations

from fastapi import FastAPI

from openclaw.page import html_changes, html_routes, json_changes, json_routes, live, login
from openclaw.page.source import PageSource

ROUTERS = tuple(
    module.router for module in (html_routes, html_changes, login, json_routes, json_changes, live)
)


def add_page(app: FastAPI, source: PageSource) -> None:
    """Adds the routes; they read from `source`."""
    app.state.page = source
    for router in ROUTERS:
        app.include_router(router)
