"""Puts the page into an app."""

from __future__ import annotations

from fastapi import FastAPI

from openclaw.page import html_routes, json_routes, live, login
from openclaw.page.source import PageSource

ROUTERS = (html_routes.router, login.router, json_routes.router, live.router)


def add_page(app: FastAPI, source: PageSource) -> None:
    """Adds the routes; they read from `source`."""
    app.state.page = source
    for router in ROUTERS:
        app.include_router(router)
