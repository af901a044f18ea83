"""Administration of weight versions: their states, rollback, pinning, and quarantined samples.

With `?adapter=NAME` the routes are about a trained adapter, whose versions have their own numbers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from claw_base.errors import OrderError
from claw_base.run_folder import orders
from openclaw.common.messages import text_of
from openclaw.errors import ClientError
from openclaw.gateway.chat_request import SHOWN, ChatRequest, chat_request, parse_body
from openclaw.gateway.gateway import Gateway
from openclaw.gateway.trial import answers_of
from openclaw.http.auth import check_admin
from openclaw.store import RolloutStore
from openclaw.types import DEFAULT_TRAINER, Message, policy_of
from openclaw.versions.comparison import compare_versions
from openclaw.versions.listing import list_versions, show_version

router = APIRouter()

WAIT_SECONDS = 60.0
"""Seconds to wait for the driver; after them the response is 202, and the command stays pending."""
MOST_PROMPTS = 64


@router.get("/admin/versions")
async def versions(request: Request) -> Response:
    """Returns `{"object": "list", "live", "pinned", "data": [...]}`, oldest version first."""
    store, run_dir = _places(request)
    listing = await asyncio.to_thread(list_versions, store, run_dir, adapter_named(request))
    return _json({"object": "list", **listing})


@router.get("/admin/versions/diff")
async def difference(request: Request, a: str, b: str) -> Response:
    """Returns the difference of two versions: `{"a", "b", "common", "only_a", "only_b", "measurements"}`."""
    return _json(await _comparison(request, _number(a), _number(b)))


@router.post("/admin/versions/diff")
async def side_by_side(request: Request) -> Response:
    """Returns the difference of two versions, with greedy answers of both to prompts.

    The body is `{"a", "b", "prompts": [text or {"messages": [...]}]}`. The response also has `answers`: `[{"prompt",
    "a", "b", "same"}]`. Serving continues, and nothing is stored.
    """
    check_admin(request, request.app.state.gateway.settings)
    body = parse_body(await request.body())
    first, second = (_number(str(body.get(name))) for name in ("a", "b"))
    asked = _prompts(body.get("prompts"))
    comparison = await _comparison(request, first, second)
    return _json({**comparison, "answers": await _answers_of_both(request, (first, second), asked)})


@router.get("/admin/versions/{number}")
async def version(request: Request, number: str) -> Response:
    """Returns one version with all its measurements. Raises ClientError (404)."""
    store, run_dir = _places(request)
    shown = await asyncio.to_thread(show_version, store, run_dir, _number(number), adapter_named(request))
    if shown is None:
        raise ClientError(f"there is no version {number}", "version", "not_found", 404)
    return _json({"object": "version", **shown})


@router.post("/admin/versions/unpin")
async def unpin(request: Request) -> Response:
    """Serves the newest weights again, and resumes training."""
    return await _send_order(request, "unpin", None)


@router.post("/admin/versions/{number}/rollback")
async def rollback(request: Request, number: str) -> Response:
    """Makes an older version live at once; later training continues from it.

    The body is `{"drop_turns": false}`. Newer versions are undone. Their samples become ready again, or quarantined
    with `drop_turns`.
    """
    check_admin(request, request.app.state.gateway.settings)
    body = parse_body(await request.body() or b"{}")
    drop = body.get("drop_turns", False)
    if not isinstance(drop, bool):
        raise ClientError("drop_turns must be true or false", "drop_turns")
    return await _send_order(request, "rollback", number, drop, "by hand")


@router.post("/admin/versions/{number}/pin")
async def pin(request: Request, number: str) -> Response:
    """Serves the version and pauses training. Turns are still collected and judged."""
    return await _send_order(request, "pin", number)


@router.post("/admin/versions/{number}/release")
async def release(request: Request, number: str) -> Response:
    """Makes the version's quarantined samples ready for training again."""
    store, _ = _places(request)
    version, trainer = (
        await _existing_version(request, number),
        policy_of(DEFAULT_TRAINER, adapter_named(request)),
    )
    count = await asyncio.to_thread(store.quarantine.release, version, trainer)
    return _json({"version": version, "released": count})


@router.delete("/admin/versions/{number}/quarantine")
async def delete(request: Request, number: str) -> Response:
    """Drops the version's quarantined samples permanently; their turns stay stored."""
    store, _ = _places(request)
    version, trainer = (
        await _existing_version(request, number),
        policy_of(DEFAULT_TRAINER, adapter_named(request)),
    )
    count = await asyncio.to_thread(store.quarantine.delete, version, trainer)
    return _json({"version": version, "deleted": count})


async def _comparison(request: Request, first: int, second: int) -> dict[str, Any]:
    store, run_dir = _places(request)
    if adapter_named(request) is not None:
        raise ClientError(
            "versions of an adapter cannot be compared; remove the parameter adapter",
            "adapter",
            "unsupported_value",
        )
    comparison = await asyncio.to_thread(compare_versions, store, run_dir, first, second)
    if comparison is None:
        raise ClientError(f"version {first} or version {second} does not exist", "a", "not_found", 404)
    return comparison


def _prompts(prompts: Any) -> list[ChatRequest]:
    if not isinstance(prompts, list) or not 1 <= len(prompts) <= MOST_PROMPTS:
        raise ClientError(f"prompts must be a list of 1 to {MOST_PROMPTS} texts or conversations", "prompts")
    return [
        chat_request(one if isinstance(one, dict) else {"messages": [{"role": "user", "content": one}]})
        for one in prompts
    ]


async def _answers_of_both(
    request: Request, versions: tuple[int, int], asked: list[ChatRequest]
) -> list[dict[str, Any]]:
    """Returns the prompts with the greedy answers of both versions."""
    gateway: Gateway = request.app.state.gateway
    store, _ = _places(request)
    known = {one.version: one for one in await asyncio.to_thread(store.versions.all)}
    prompts = [await gateway.prompt_ids(one) for one in asked]
    texts = [
        [_text(one) for one in await answers_of(gateway, known[version], prompts)] for version in versions
    ]
    return [
        {"prompt": text_of(one.messages[-1]), "a": first, "b": second, "same": first == second}
        for one, first, second in zip(asked, *texts, strict=True)
    ]


def _text(message: Message) -> str:
    """Returns the visible text of an answer, with its tool calls."""
    calls = [
        f"{call['function']['name']}({call['function']['arguments']})"
        for call in message.get("tool_calls") or []
    ]
    return "\n".join(filter(None, (text_of(message), *calls)))


async def _existing_version(request: Request, version_text: str) -> int:
    """Returns the number of an existing version. Raises ClientError (404)."""
    number, (store, _) = _number(version_text), _places(request)
    if await asyncio.to_thread(show_version, store, None, number, adapter_named(request)) is None:
        raise ClientError(f"there is no version {number}", "version", "not_found", 404)
    return number


async def _send_order(
    request: Request, action: str, version_text: str | None, drop_turns: bool = False, reason: str = ""
) -> Response:
    _, run_dir = _places(request)
    number = None if version_text is None else await _existing_version(request, version_text)
    if run_dir is None:
        message = "without a run folder (--run-dir) the server cannot change the live version"
        if request.app.state.gateway.settings.run_dir is not None:
            message = f"adapter {adapter_named(request)!r} has no versions yet"
        raise ClientError(message, code="no_run", status=409)
    if action == "unpin" and orders.pinned(run_dir) is None and not orders.waits(run_dir):
        raise ClientError("no version is pinned", code="not_pinned", status=409)
    try:
        order = await asyncio.to_thread(orders.place, run_dir, action, number, drop_turns, reason)
    except OrderError as error:
        raise ClientError(str(error), code="busy", status=409) from error
    done = await _driver_answer(run_dir, order, f"{action} {'' if number is None else number}".strip())
    if done is None:
        return _json({"action": action, "version": number, "status": "waiting"}, 202)
    if done["error"] is not None:
        raise ClientError(str(done["error"]), "version", "refused", 409)
    return _json({"action": action, "version": number, "status": "done", "seconds": done["seconds"]})


async def _driver_answer(run_dir: Path, order: str, what: str) -> dict[str, Any] | None:
    """Returns the answer of the driver; None after `WAIT_SECONDS`. Raises ClientError (503) if this server stops
    meanwhile."""
    try:
        return await orders.wait_for(run_dir, order, WAIT_SECONDS)
    except asyncio.CancelledError:
        if not orders.waits(run_dir):
            raise
        message = (
            f"the server is stopping; {what} will be executed at the next start; to cancel it, delete "
            f"{run_dir / orders.ORDER}"
        )
        raise ClientError(message, code="stopping", status=503, kind="server_error") from None


def _places(request: Request) -> tuple[RolloutStore, Path | None]:
    gateway: Gateway = request.app.state.gateway
    check_admin(request, gateway.settings)
    if gateway.recorder is None:
        raise ClientError(
            "this server does not record turns, so it has no versions", code="not_recording", status=409
        )
    run_dir, adapter = gateway.settings.run_dir, adapter_named(request)
    if run_dir is None or adapter is None:
        return gateway.recorder.store, Path(run_dir) if run_dir else None
    home = gateway.trained.home(adapter)
    return gateway.recorder.store, home if home is not None and home.is_dir() else None


def adapter_named(request: Request) -> str | None:
    """Returns the value of the query parameter `adapter`; None: the served model.

    Raises ClientError (404) if no such adapter is trained here.
    """
    name = request.query_params.get("adapter")
    gateway: Gateway = request.app.state.gateway
    if name is not None and name not in gateway.trained.adapters:
        raise ClientError(
            f"adapter {name[:SHOWN]!r} is not trained on this server", "adapter", "not_found", 404
        )
    return name


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ClientError(f"{text!r} is not a version number", "version", "not_found", 404)
    return int(text)


def _json(body: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
