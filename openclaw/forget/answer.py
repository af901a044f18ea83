"""Describes the gateway's answer about a forgotten person as text."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def as_lines(answer: Json) -> list[str]:
    """Returns lines of text; `answer`: as returned by `openclaw.gateway.forgetting.PeopleToForget.forget`."""
    counts = ", ".join(f"{count} {kind}" for kind, count in answer["deleted"].items() if count)
    lines = [f"deleted from the store: {counts or 'nothing'}"]
    if answer["status"] == "waiting":
        lines.append("the trainer does not answer now: it removes the rest later, or at its next start")
    elif answer["adapter"] is not None:
        name = answer["adapter"]
        lines.append(
            f"the adapter {name} and all its versions are deleted; its next use starts a new adapter"
        )
    if running := answer["running"]:
        lines.append(still_running(running))
    return lines + [_about_shared(one) for one in answer["shared"]]


def still_running(count: int) -> str:
    """Returns the sentence about requests that a deletion did not wait for."""
    return (
        f"{count} request(s) with deleted text are still being answered: an engine may still read them. Their answers "
        "are not stored"
    )


def _about_shared(one: Json) -> str:
    name = "the model" if one["adapter"] is None else f"the adapter {one['adapter']}"
    option = "" if one["adapter"] is None else f"--adapter {one['adapter']} "
    return (
        f"{name} stays as it is: others use it too. It learned from {one['turns']} of these turns, first in version "
        f"{one['first']}. To undo that: ./claw versions {option}rollback {one['before']}. This undoes {one['versions']} "
        f"version(s); {one['others']} turn(s) of others that they learned from are trained again"
    )
