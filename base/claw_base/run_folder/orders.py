"""Users' orders about weight versions: one file in the run folder, answered in another.

RUN_DIR/version_order.json   {"id", "action": "rollback" | "pin" | "unpin", "version", "drop_turns", "reason"}
RUN_DIR/version_state.json   {"pinned": version or null, "done": {"id", "error", "seconds"} or null,
                             "trained": last rollout that was trained when a run went back}

The gateway writes orders and reads the answers; the driver of the run (`VersionOrders`) carries them out.
"""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from claw_base.errors import OrderError
from claw_base.files import write_json

ORDER, STATE = "version_order.json", "version_state.json"
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class VersionOrder:
    """An order. `drop_turns`: whether turns of the undone versions are excluded from training."""

    id: str
    action: str
    version: int | None = None
    drop_turns: bool = False
    reason: str = ""


def pinned(run_dir: Path) -> int | None:
    """Returns the pinned version, which is served while training waits; None if none is pinned."""
    version = _read(run_dir / STATE).get("pinned")
    return version if isinstance(version, int) else None


def place(
    run_dir: Path, action: str, version: int | None = None, drop_turns: bool = False, reason: str = ""
) -> str:
    """Writes an order; returns its id. Raises OrderError if another one is pending."""
    path = run_dir / ORDER
    order = VersionOrder(uuid.uuid4().hex, action, version, drop_turns, reason)
    temporary = path.with_name(f".{ORDER}.{os.getpid()}.{order.id}")
    temporary.write_bytes(orjson.dumps(asdict(order)))
    try:
        os.link(temporary, path)  # fails if another order is pending
    except FileExistsError:
        waiting = _read(path)
        raise OrderError(
            f"an order is pending already: {waiting.get('action')} {waiting.get('version')}; is the trainer running?"
        ) from None
    finally:
        temporary.unlink()
    return order.id


def waits(run_dir: Path) -> bool:
    """Returns whether an order is pending."""
    return (run_dir / ORDER).exists()


def answer_to(run_dir: Path, order_id: str) -> dict[str, Any] | None:
    """Returns the answer (`error`, `seconds`), or None while the order is pending."""
    done = _read(run_dir / STATE).get("done") or {}
    return dict(done) if done.get("id") == order_id else None


async def wait_for(run_dir: Path, order_id: str, seconds: float) -> dict[str, Any] | None:
    """Returns the answer once it is available; None after `seconds`: the driver carries the order out later."""
    deadline = time.monotonic() + seconds
    while (answer := answer_to(run_dir, order_id)) is None and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
    return answer


class VersionOrders:
    """The driver's side of both files. A new driver finds an order that a killed one left."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.order, self.state = run_dir / ORDER, run_dir / STATE

    def waiting(self) -> VersionOrder | None:
        """Returns the pending order if it can be read."""
        try:
            return self._parse()
        except (ValueError, TypeError):
            return None

    def go_back(self, version: int, reason: str) -> bool:
        """Writes the driver's own order to roll back and to exclude the turns of the undone versions from training.
        Returns False if another order is pending."""
        try:
            place(self.run_dir, "rollback", version, drop_turns=True, reason=reason)
        except OrderError:
            return False
        return True

    def next(self) -> VersionOrder | None:
        """Returns the pending order; an unreadable one is answered with an error at once."""
        try:
            return self._parse()
        except (ValueError, TypeError) as error:
            self.finish(VersionOrder("", ""), self.pinned, f"{self.order} is not a valid order: {error}")
            return None

    @property
    def pinned(self) -> int | None:
        """Returns the pinned version, which is served while training waits; None if none is pinned."""
        return pinned(self.run_dir)

    @property
    def trained(self) -> int:
        """Returns the last rollout that was trained when the run was rolled back; -1 if it never was."""
        return int(_read(self.state).get("trained", -1))

    def going_back(self, rollout_id: int) -> None:
        """Records the rollout count, so that a driver that starts from an older checkpoint continues it."""
        write_json(self.state, {**_read(self.state), "trained": max(self.trained, rollout_id)})

    def forget(self, rollout_id: int) -> None:
        """Deletes orders and answers, except the rollout count."""
        write_json(self.state, {"trained": max(self.trained, rollout_id)})
        self.order.unlink(missing_ok=True)

    def finish(
        self, order: VersionOrder, pinned: int | None, error: str | None = None, seconds: float = 0.0
    ) -> None:
        """Writes the result, then removes the order: carrying out an order twice is better than losing it."""
        done = {"id": order.id, "error": error, "seconds": round(seconds, 3)}
        write_json(self.state, {**_read(self.state), "pinned": pinned, "done": done})
        self.order.unlink(missing_ok=True)

    def _parse(self) -> VersionOrder | None:
        try:
            return VersionOrder(**orjson.loads(self.order.read_bytes()))
        except FileNotFoundError:
            return None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = orjson.loads(path.read_bytes())
    except (FileNotFoundError, orjson.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}
