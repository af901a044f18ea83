"""Routes under /admin/versions that report three versions and record rollback requests."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

PATH = "/admin/versions"
EMPTY: dict[str, Any] = {"parent": None, "reason": None, "measurements": {}, "rollout_id": None}
ROWS: tuple[dict[str, Any], ...] = (
    {"version": 1, "status": "superseded", "created_at": 1.0},
    {"version": 2, "parent": 1, "status": "live", "created_at": 2.0, "measurements": {"kl": 0.01}},
    {
        "version": 3, "parent": 2, "status": "rejected", "created_at": 3.0, "reason": "KL <b>9.1</b> above 1",
        "measurements": {"kl": 9.1, "nested": {"x": [1]}, "ok": False}, "rollout_id": 5,
    },
)  # fmt: skip


def difference(a: int, b: int) -> dict[str, Any]:
    """Returns the difference of two versions in a server's format."""
    rows = {row["version"]: row for row in ROWS}
    learned = [{"version": b, "turns": 4, "good": 3, "bad": 1}]
    told = {"common": a, "only_a": [], "only_b": learned, "measurements": {"kl": [None, 0.01]}}
    return {"object": "versions_diff", "a": rows[a], "b": rows[b], **told}


def scripted_gate(app: FastAPI, by_number: bool = False) -> list[dict[str, Any]]:
    """Adds the routes before the app's own; returns the list of recorded rollbacks. `by_number`: rollback is a route
    of each version."""
    asked: list[dict[str, Any]] = []
    live = 2

    async def listed() -> dict[str, Any]:
        if by_number:
            return {"live": live, "pinned": None, "data": list(ROWS)}
        return {"live": live, "pinned": None, "versions": [EMPTY | row for row in ROWS]}

    async def back_to(number: int, body: dict[str, Any]) -> dict[str, Any]:
        nonlocal live
        asked.append({"version": number, **body})
        live = number
        return {"version": number, "status": "done"}

    async def back(body: dict[str, Any]) -> dict[str, Any]:
        nonlocal live
        asked.append(body)
        live = body["version"]
        return {"live": live}

    async def pinned(number: int) -> dict[str, Any]:
        asked.append({"pin": number})
        return {"version": number, "status": "done"}

    async def unpinned() -> dict[str, Any]:
        asked.append({"pin": None})
        return {"status": "done"}

    async def compared(a: int, b: int) -> dict[str, Any]:
        return difference(a, b)

    async def answered(body: dict[str, Any]) -> dict[str, Any]:
        a, b = body["a"], body["b"]
        answers = [
            {"prompt": one, "a": f"{a} says <{one}>", "b": f"{b} says <{one}>", "same": False}
            for one in body["prompts"]
        ]
        return difference(a, b) | {"answers": answers}

    app.add_api_route(PATH, listed)
    app.add_api_route(f"{PATH}/diff", compared)
    app.add_api_route(f"{PATH}/diff", answered, methods=["POST"])
    app.add_api_route(f"{PATH}/unpin", unpinned, methods=["POST"])
    app.add_api_route(f"{PATH}/{{number}}/pin", pinned, methods=["POST"])
    if by_number:
        app.add_api_route(f"{PATH}/{{number}}/rollback", back_to, methods=["POST"])
    else:
        app.add_api_route(f"{PATH}/rollback", back, methods=["POST"])
    app.router.routes.sort(key=lambda route: not str(getattr(route, "path", "")).startswith(PATH))
    return asked
