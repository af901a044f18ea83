"""An environment that counts, pools of it in this process, and a request to one."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import httpx
from starlette.types import ASGIApp

from slime.agents import Action, Observation, Outcome, Start, Task, Tool, ToolCall
from slime.errors import EnvironmentAway

ADD = Tool("add", "Adds.", {"type": "object", "properties": {"n": {"type": "integer"}}})


class Counter:
    """Sums its arguments. On request it hangs, raises or is unavailable."""

    made: ClassVar[list[Counter]] = []

    def __init__(self) -> None:
        self.total, self.closed, self.go_on = 0, False, asyncio.Event()
        type(self).made.append(self)

    async def reset(self, task: Task) -> Start:
        self.task = task
        return Start([{"role": "user", "content": f"Add up to {task.label}."}], (ADD,))

    async def step(self, action: Action) -> Observation:
        if action.text == "hang":
            await self.go_on.wait()
        if action.text == "away":
            raise EnvironmentAway("the power is off")
        if action.text == "raise":
            raise RuntimeError("a mistake")
        self.total += sum(call.arguments["n"] for call in action.calls)
        return Observation([{"role": "tool", "content": str(self.total)}], self.total > 9, 0.5)

    async def evaluate(self) -> Outcome:
        return Outcome(1.0, True, {"total": self.total})

    async def close(self) -> None:
        self.closed = True


def add(n: int, text: str = "") -> Action:
    return Action(text, (ToolCall("add", {"n": n}),))


class Pools(httpx.AsyncBaseTransport):
    """Pools of this process by host name; a connection to an unknown name fails."""

    def __init__(self, **apps: Any) -> None:
        self.apps = apps
        self.paths: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        if request.url.host not in self.apps:
            raise httpx.ConnectError("refused")
        found = await httpx.ASGITransport(self.apps[request.url.host]).handle_async_request(request)
        if self.apps.get("deaf"):  # answers that do not arrive
            self.apps["deaf"] -= 1
            raise httpx.ReadError("broken")
        return found


def asked(
    app: ASGIApp, path: str, key: str | None = None, **body: object
) -> tuple[int, dict[str, Any], httpx.Headers]:
    async def go() -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://pool") as http:
            return await http.post(path, json=body, headers=headers)

    response = asyncio.run(go())
    return response.status_code, response.json(), response.headers
