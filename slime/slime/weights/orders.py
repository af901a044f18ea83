"""Orders of people about versions: go back to one, pin one, go on. They lie in the run folder until they are done.

RUN_DIR/version_order.json   {"id", "action": "rollback" | "pin" | "unpin", "version", "drop_turns", "reason"}
RUN_DIR/version_state.json   {"pinned": version or null, "done": {"id", "error", "seconds"} or null,
                             "trained": last rollout that was trained when somebody went back}
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from slime.processes.records import write_json

ORDER, STATE = "version_order.json", "version_state.json"


@dataclass(frozen=True)
class VersionOrder:
    """What somebody wants; `drop_turns`: what is undone is not learned again."""

    id: str
    action: str
    version: int | None = None
    drop_turns: bool = False
    reason: str = ""


class VersionOrders:
    """The driver's side of both files. An order that a killed driver left is found by the next one."""

    def __init__(self, run_dir: Path) -> None:
        self.order, self.state = run_dir / ORDER, run_dir / STATE

    def waiting(self) -> VersionOrder | None:
        """The order that waits, if there is one and it can be read."""
        try:
            return self._read()
        except (ValueError, TypeError):
            return None

    def go_back(self, version: int, reason: str) -> bool:
        """Leaves the driver's own order to go back, without the turns; False where another one waits."""
        if self.order.exists():
            return False
        order = VersionOrder(uuid.uuid4().hex, "rollback", version, drop_turns=True, reason=reason)
        write_json(self.order, asdict(order))
        return True

    def next(self) -> VersionOrder | None:
        """The order that waits; one that cannot be read is answered at once."""
        try:
            return self._read()
        except (ValueError, TypeError) as error:
            self.finish(VersionOrder("", ""), self.pinned, f"{self.order} is not an order: {error}")
            return None

    @property
    def pinned(self) -> int | None:
        """The version that is served while training waits."""
        return self._state().get("pinned")

    @property
    def trained(self) -> int:
        """The last rollout that was trained when a run went back; -1 where it never did."""
        return int(self._state().get("trained", -1))

    def going_back(self, rollout_id: int) -> None:
        """Keeps how far the rollouts are counted: a driver that starts from the older checkpoint counts on from there."""
        write_json(self.state, {**self._state(), "trained": max(self.trained, rollout_id)})

    def finish(
        self, order: VersionOrder, pinned: int | None, error: str | None = None, seconds: float = 0.0
    ) -> None:
        """Tells the result, then removes the order: done twice is better than lost."""
        done = {"id": order.id, "error": error, "seconds": round(seconds, 3)}
        write_json(self.state, {**self._state(), "pinned": pinned, "done": done})
        self.order.unlink(missing_ok=True)

    def _read(self) -> VersionOrder | None:
        try:
            return VersionOrder(**json.loads(self.order.read_text()))
        except FileNotFoundError:
            return None

    def _state(self) -> dict[str, Any]:
        try:
            found = json.loads(self.state.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}
