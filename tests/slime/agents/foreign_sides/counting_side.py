"""An environment for `serve.py` without dependencies: counts, and fails on request."""

from __future__ import annotations

import os
import sys
from typing import Any

from serve import Refused

START = {"messages": [{"role": "user", "content": "Count."}], "tool_schemas": []}


class Side:
    def __init__(self, options: dict[str, Any]) -> None:
        if options.get("broken"):
            raise ImportError("no module named games")
        self.totals: dict[str, int] = {}

    async def start(self) -> None:
        print("a library greets")

    async def stop(self) -> None:
        """Does nothing."""

    async def tasks(self, first: int, count: int) -> dict[str, Any]:
        return {"rows": [{"name": f"task {number}"} for number in range(first, first + count)]}

    async def reset(self, episode: str, task: dict[str, Any]) -> dict[str, Any]:
        if task["label"] == "no such task":
            raise Refused("there is no such task")
        self.totals[episode] = 0
        return START

    async def step(self, episode: str, action: dict[str, Any]) -> dict[str, Any]:
        print("a library prints", file=sys.stdout)
        if action["text"] == "die":
            os._exit(3)
        if action["text"] == "raise":
            raise RuntimeError("the disk is full")
        self.totals[episode] += sum(call["arguments"]["n"] for call in action["calls"])
        shown = {"role": "tool", "content": str(self.totals[episode])}
        return {"messages": [shown], "done": False, "step_score": None}

    async def evaluate(self, episode: str) -> dict[str, Any]:
        keys = sorted(name for name in os.environ if "KEY" in name)
        return {"score": self.totals[episode], "solved": True, "details": {"keys": keys}}

    async def close(self, episode: str) -> dict[str, Any]:
        del self.totals[episode]
        return {}
