"""Adds the page to an application that has the JSON routes of `openclaw.http.admin`."""

from __future__ import annotations

from fastapi import FastAPI

from openclaw.page import html_changes, html_routes, live, login
from openclaw.page.notices import Notices


def add_page(app: FastAPI) -> None:
    """Adds the routes of the HTML views, which read from `app.state.views`."""
    app.state.notices = Notices()
    for module in (html_routes, html_changes, login, live):
        app.include_router(module.router)
