"""Functions for both kinds of small tasks: held-out templates, and the row of a task in a prompt file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from gui_rl.screens.sites import MADE_HOST

HELD_OUT = 0.2
Template = tuple[str, str, str]


def is_held_out(kind: str, template: Template) -> bool:
    """Returns whether a template is held out, by its hash, so that other templates do not change it."""
    digest = hashlib.sha256("|".join((kind, *template)).encode()).digest()
    return digest[0] < 256 * HELD_OUT


def row(
    name: str,
    domain: str,
    template: str,
    asked: str,
    pages: Sequence[dict[str, Any]],
    kept: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns a line of a prompt file.

    Args:
        asked: the request to the agent.
        pages: for `made_page`; the first is opened.
        kept: the final state of the site.
    """
    config = {
        "id": name,
        "instruction": asked,
        "pages": [*pages],
        "config": [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": [f"http://{MADE_HOST}/0"]}}],
        "evaluator": {
            "func": "exact_match",
            "result": {"type": "site_state"},
            "expected": {"type": "rule", "rules": {"expected": dict(kept)}},
        },
    }
    about = {"task_id": name, "domain": domain, "template": template, "task_config": config}
    return {"prompt": asked, "label": "", "metadata": about}
