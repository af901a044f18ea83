"""Orders to whoever updates the weights of a run: one file in the run folder, answered in another.

RUN_DIR/version_order.json   {"id", "action": "rollback" | "pin" | "unpin", "version", "drop_turns", "reason"}
RUN_DIR/version_state.json   {"pinned": version or null, "done": {"id", "error", "seconds"} or null}
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from pathlib import Path
from typing import Any

import orjson

from openclaw.errors import StoreError

ORDER, STATE = "version_order.json", "version_state.json"
LOOK_SECONDS = 0.05


def pinned(run_dir: Path) -> int | None:
    """The version that is served while training waits."""
    found = _read(run_dir / STATE).get("pinned")
    return found if isinstance(found, int) else None


def place(
    run_dir: Path, action: str, version: int | None = None, drop_turns: bool = False, reason: str = ""
) -> str:
    """Leaves an order; returns its id.

    Raises:
        StoreError: another one waits.
    """
    path = run_dir / ORDER
    order = {"id": uuid.uuid4().hex, "action": action, "version": version}
    order |= {"drop_turns": drop_turns, "reason": reason}
    temporary = path.with_name(f".{ORDER}.{os.getpid()}.{order['id']}")
    temporary.write_bytes(orjson.dumps(order))
    try:
        os.link(temporary, path)  # fails where one waits
    except FileExistsError:
        waiting = _read(path)
        raise StoreError(
            f"an order waits already: {waiting.get('action')} {waiting.get('version')}; is the trainer at work?"
        ) from None
    finally:
        temporary.unlink()
    return str(order["id"])


def waits(run_dir: Path) -> bool:
    """Whether an order was not carried out yet."""
    return (run_dir / ORDER).exists()


def answer_to(run_dir: Path, order_id: str) -> dict[str, Any] | None:
    """The answer (`error`, `seconds`), or None while the order still waits."""
    done = _read(run_dir / STATE).get("done") or {}
    return dict(done) if done.get("id") == order_id else None


async def wait_for(run_dir: Path, order_id: str, seconds: float) -> dict[str, Any] | None:
    """The answer when it comes; None after `seconds`: the order is carried out when the driver comes to it."""
    deadline = time.monotonic() + seconds
    while (answer := answer_to(run_dir, order_id)) is None and time.monotonic() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
    return answer


def _read(path: Path) -> dict[str, Any]:
    try:
        found = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}
