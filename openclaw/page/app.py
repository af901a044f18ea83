"""Adds the page to an app that has the JSON routes (`openclaw.http.admin`)."""

from __future__ import annotations

from fastapi import FastAPI

from openclaw.page import html_changes, html_routes, live, login
from openclaw.page.notices import Notices


def add_page(app: FastAPI) -> None:
    """Adds the routes of the HTML views; they read from the app's source (`openclaw.views.source`)."""
    app.state.notices = Notices()
    for module in (html_routes, html_changes, login, live):
        app.include_router(module.router)
