"""An OpenEnv server as an environment: its action is a tool, its observations are JSON, its rewards are summed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import aiohttp

from slime.agents.protocol import Action, Message, Observation, Outcome, Start, Task, Tool
from slime.errors import EnvironmentAway

Json = dict[str, Any]
WRONG_ACTION = ("VALIDATION_ERROR", "INVALID_JSON")
"""Errors caused by the model, which are shown to it; all others are the server's."""


class OpenEnvEnvironment:
    """One session of a server, over its WebSocket: `agent(lambda: OpenEnvEnvironment("http://127.0.0.1:8000"))`.

    The model sees the task's prompt and the observation of reset, and acts by calling the tool `act` with the server's
    action. An answer without a call ends the episode. Arguments of reset come from the metadata's `openenv_reset`.

    A server allows as many sessions as its `max_concurrent_envs`; a full one is an `EnvironmentAway`.

    Args:
        url: address of the server.
        solved_at: sum of rewards from which a task counts as solved.
        seconds: time-out of a response.
    """

    def __init__(self, url: str, solved_at: float = 1.0, seconds: float = 120.0) -> None:
        self.url, self.solved_at = url.rstrip("/"), solved_at
        self.timeout = aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)
        self.seconds = seconds
        self.rewards: list[float] = []
        self.http: aiohttp.ClientSession | None = None
        self.socket: aiohttp.ClientWebSocketResponse | None = None

    async def reset(self, task: Task) -> Start:
        self.http = aiohttp.ClientSession(timeout=self.timeout)
        try:
            async with self.http.get(f"{self.url}/schema") as answer:
                schema = (await answer.json())["action"]
            self.socket = await self.http.ws_connect(f"{self.url.replace('http', 'ws', 1)}/ws")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentAway(f"{self.url}: {type(error).__name__} {error}") from error
        result = await self._request("reset", dict(task.metadata.get("openenv_reset") or {}))
        tool = Tool("act", str(schema.get("description") or "Acts in the environment."), schema)
        first = [{"role": "user", "content": task.prompt}] if isinstance(task.prompt, str) else task.prompt
        return Start([*first, _message("user", result)], (tool,))

    async def step(self, action: Action) -> Observation:
        """Carries out the calls of a turn in order, until one ends the episode."""
        shown, score = [], 0.0
        for call in action.calls:
            result = await self._request("step", call.arguments)
            reward = float(result.get("reward") or 0.0)
            self.rewards.append(reward)
            score += reward
            shown.append(_message("tool", result))
            if result.get("done"):
                return Observation(shown, done=True, step_score=score)
        return Observation(shown, done=not action.calls, step_score=score if action.calls else None)

    async def evaluate(self) -> Outcome:
        total = sum(self.rewards)
        return Outcome(total, total >= self.solved_at, {"openenv_steps": len(self.rewards)})

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.close()
        if self.http is not None:
            await self.http.close()

    async def _request(self, kind: str, data: Mapping[str, Any]) -> Json:
        """Returns the observation, or the server's message if it rejects the action. Raises EnvironmentAway."""
        if self.socket is None:
            raise EnvironmentAway("the environment was used before its reset")
        try:
            await self.socket.send_json({"type": kind, "data": dict(data)})
            answer = await self.socket.receive_json(timeout=self.seconds)
            fields = answer["data"]
            if answer["type"] == "error":
                if kind == "step" and fields.get("code") in WRONG_ACTION:
                    return {"observation": f"Error: {fields.get('message')}"}
                raise EnvironmentAway(f"{self.url}: {fields.get('code')} {fields.get('message')}")
            return {
                "observation": fields["observation"],
                "reward": fields.get("reward"),
                "done": fields.get("done"),
            }
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, TypeError) as error:
            raise EnvironmentAway(f"{self.url}: {type(error).__name__} {error}") from error


def _message(role: str, result: Json) -> Message:
    observation = result["observation"]
    return {
        "role": role,
        "content": observation
        if isinstance(observation, str)
        else json.dumps(observation, ensure_ascii=False),
    }
