"""Orders of people about weight versions: one file in the run folder, answered in another.

RUN_DIR/version_order.json   {"id", "action": "rollback" | "pin" | "unpin", "version", "drop_turns", "reason"}
RUN_DIR/version_state.json   {"pinned": version or null, "done": {"id", "error", "seconds"} or null,
                             "trained": last rollout that was trained when a run went back}

The gateway places orders and reads the answers; the driver of the run (`VersionOrders`) carries them out.
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
    """An order; `drop_turns`: turns of the undone versions are not learned again."""

    id: str
    action: str
    version: int | None = None
    drop_turns: bool = False
    reason: str = ""


def pinned(run_dir: Path) -> int | None:
    """Returns the version that is served while training waits; None if none is pinned."""
    version = _read(run_dir / STATE).get("pinned")
    return version if isinstance(version, int) else None


def place(
    run_dir: Path, action: str, version: int | None = None, drop_turns: bool = False, reason: str = ""
) -> str:
    """Leaves an order; returns its id. Raises OrderError if another one waits."""
    path = run_dir / ORDER
    order = VersionOrder(uuid.uuid4().hex, action, version, drop_turns, reason)
    temporary = path.with_name(f".{ORDER}.{os.getpid()}.{order.id}")
    temporary.write_bytes(orjson.dumps(asdict(order)))
    try:
        os.link(temporary, path)  # fails if another one waits
    except FileExistsError:
        waiting = _read(path)
        raise OrderError(
            f"an order waits already: {waiting.get('action')} {waiting.get('version')}; is the trainer at work?"
        ) from None
    finally:
        temporary.unlink()
    return order.id


def waits(run_dir: Path) -> bool:
    """Returns whether an order was not carried out yet."""
    return (run_dir / ORDER).exists()


def answer_to(run_dir: Path, order_id: str) -> dict[str, Any] | None:
    """Returns the answer (`error`, `seconds`), or None while the order still waits."""
    done = _read(run_dir / STATE).get("done") or {}
    return dict(done) if done.get("id") == order_id else None


async def wait_for(run_dir: Path, order_id: str, seconds: float) -> dict[str, Any] | None:
    """Returns the answer when it comes; None after `seconds`: the driver carries the order out later."""
    deadline = time.monotonic() + seconds
    while (answer := answer_to(run_dir, order_id)) is None and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
    return answer


class VersionOrders:
    """The driver's side of both files. The next driver finds an order that a killed one left."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self.order, self.state = run_dir / ORDER, run_dir / STATE

    def waiting(self) -> VersionOrder | None:
        """Returns the order that waits, if there is one and it can be read."""
        try:
            return self._parse()
        except (ValueError, TypeError):
            return None

    def go_back(self, version: int, reason: str) -> bool:
        """Leaves the driver's own order to go back, without the turns; False if another one waits."""
        try:
            place(self.run_dir, "rollback", version, drop_turns=True, reason=reason)
        except OrderError:
            return False
        return True

    def next(self) -> VersionOrder | None:
        """Returns the order that waits; one that cannot be read is answered at once."""
        try:
            return self._parse()
        except (ValueError, TypeError) as error:
            self.finish(VersionOrder("", ""), self.pinned, f"{self.order} is not an order: {error}")
            return None

    @property
    def pinned(self) -> int | None:
        """The version that is served while training waits; None if none is pinned."""
        return pinned(self.run_dir)

    @property
    def trained(self) -> int:
        """The last rollout that was trained when a run went back; -1 if it never did."""
        return int(_read(self.state).get("trained", -1))

    def going_back(self, rollout_id: int) -> None:
        """Keeps how far the rollouts are counted: a driver that starts from the older checkpoint counts on from there."""
        write_json(self.state, {**_read(self.state), "trained": max(self.trained, rollout_id)})

    def forget(self, rollout_id: int) -> None:
        """Drops orders and answers; only how far the rollouts are counted is kept."""
        write_json(self.state, {"trained": max(self.trained, rollout_id)})
        self.order.unlink(missing_ok=True)

    def finish(
        self, order: VersionOrder, pinned: int | None, error: str | None = None, seconds: float = 0.0
    ) -> None:
        """Writes the result, then removes the order: an order carried out twice is better than one lost."""
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
