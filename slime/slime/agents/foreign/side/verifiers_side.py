"""Episodes of verifiers 0.4: a taskset with its environment, harness, tools and rewards, all unchanged.

verifiers plays an episode by itself and calls a model by HTTP. That model is `Bridge`, in this process: each request
becomes an observation, and our action becomes the response.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from serve import Refused
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.configs.client import EvalClientConfig
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

Json = dict[str, Any]
DEFAULT_HARNESS = "slime_chat"
UNSUPPORTED = "this environment does not support: run it with slime.agents.through_gateway"
CUT = "max_turns"  # verifiers' stop reason for an episode that reached a limit


class Side:
    """All episodes of one configuration.

    Args:
        options: `env`, verifiers' own configuration as a mapping ({"taskset": {"id": ...}}); `harness`, the default of
            all agents; `solved_at`, the reward from which a task counts as solved.
    """

    def __init__(self, options: Json) -> None:
        self.solved_at = float(options.get("solved_at", 1.0))
        self.env = load_environment(
            _config(options["env"], options.get("harness") or {"id": DEFAULT_HARNESS})
        )
        self.task_class = type(self.env.taskset).task_type()
        self.bridge = Bridge()
        self.episodes: dict[str, Played] = {}
        self.open = contextlib.AsyncExitStack()

    async def start(self) -> None:
        self.url = await self.bridge.start()
        await self.open.enter_async_context(self.env.serving())

    async def stop(self) -> None:
        for episode in list(self.episodes):
            await self.close(episode)
        await self.open.aclose()
        await self.bridge.stop()

    async def tasks(self, first: int, count: int) -> Json:
        """Returns rows of the taskset, in the form that reset accepts."""
        tasks = itertools.islice(iter(self.env.taskset), first, first + count)
        return {"rows": [task.data.model_dump(mode="json", exclude_none=True) for task in tasks]}

    async def reset(self, episode: str, task: Json) -> Json:
        row = task["metadata"].get("verifiers_task")
        if not isinstance(row, dict):
            raise Refused(
                "metadata.verifiers_task must be a task of verifiers; `python -m slime.agents.foreign` writes such rows"
            )
        data = self.task_class.data_type().model_validate(row)
        context = ModelContext(model="policy", client=EvalClientConfig(base_url=self.url))
        made = self.task_class(data, self.env.taskset.config.task)
        played = self.episodes[episode] = Played(self.bridge)
        played.begin(self.env.run_episode(made, context, on_trace=played.on_trace))
        seen = await played.next()
        if seen is None:
            raise RuntimeError(
                f"the episode ended before the first request to the model: {played.error_text()}"
            )
        return {"messages": seen, "tool_schemas": played.tools}

    async def step(self, episode: str, action: Json) -> Json:
        played = self._known(episode)
        played.answer(action)
        seen = await played.next()
        if seen is None and (error_text := played.error_text()):
            raise RuntimeError(error_text)
        return {"messages": seen or [], "done": seen is None, "step_score": None}

    async def evaluate(self, episode: str) -> Json:
        """Returns verifiers' reward; for a truncated episode, the reward of the played part."""
        played = self._known(episode)
        await played.cut()
        if error_text := played.error_text():
            raise RuntimeError(error_text)
        reward = sum(trace.reward for trace in played.traces)
        details: Json = {"rewards": {}, "metrics": {}}
        for trace in played.traces:
            details["rewards"] |= {name: one.score for name, one in trace.rewards.items()}
            details["metrics"] |= dict(trace.metrics)
        return {"score": reward, "solved": reward >= self.solved_at, "details": details}

    async def close(self, episode: str) -> Json:
        played = self.episodes.pop(episode, None)
        if played is not None:
            await played.end()
        return {}

    def _known(self, episode: str) -> Played:
        if episode not in self.episodes:
            raise RuntimeError(f"unknown episode {episode}")
        return self.episodes[episode]


class Played:
    """One episode played by verifiers."""

    def __init__(self, bridge: Bridge) -> None:
        self.bridge = bridge
        self.asked: asyncio.Queue[Asked] = asyncio.Queue()
        self.traces: list[Any] = []
        self.tools: list[Json] = []
        self.now: Asked | None = None
        self.trace: str | None = None
        self.before: list[Json] = []

    def begin(self, playing: Any) -> None:
        self.playing = asyncio.ensure_future(playing)

    def on_trace(self, trace: Any) -> None:
        self.traces.append(trace)
        self.bridge.episodes[trace.id] = self

    async def next(self) -> list[Json] | None:
        """Returns messages that are new to the model; None if the episode is over."""
        waiting = asyncio.ensure_future(self.asked.get())
        await asyncio.wait([waiting, self.playing], return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            return None
        self.now = waiting.result()
        messages = [_plain(message) for message in self.now.body["messages"]]
        if self.trace not in (None, self.now.trace):
            raise Refused(f"the episode has several agents, which {UNSUPPORTED}")
        known = len(self.before) + bool(self.before)  # including the answer after them
        if messages[: len(self.before)] != self.before:
            raise Refused(f"the harness rewrites its history, which {UNSUPPORTED}")
        self.before, self.trace, self.tools = messages, self.now.trace, self.now.body.get("tools") or []
        return messages[known:]

    def answer(self, action: Json) -> None:
        if self.now is None:
            raise RuntimeError("the episode is not waiting for an answer of the model")
        self.now.answer.set_result(_completion(action))
        self.now = None

    async def cut(self) -> None:
        """Ends an episode that waits for the model, like a limit of verifiers."""
        if self.now is not None:
            for trace in self.traces:
                trace.stop(CUT)
            self.now.answer.set_result(None)
            self.now = None
        await self.playing

    def error_text(self) -> str:
        """Returns the error in verifiers or in the environment; "" if there was none."""
        if not self.playing.done():
            return ""
        episode = self.playing.result()
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        if episode.ok or not errors:
            return "" if episode.ok else "verifiers reported that the episode failed, but no error"
        return f"{errors[-1].type}: {errors[-1].message}"

    async def end(self) -> None:
        self.playing.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self.playing
        for trace in self.traces:
            self.bridge.episodes.pop(trace.id, None)


class Asked:
    """A request for a model answer."""

    def __init__(self, trace: str, body: Json) -> None:
        self.trace, self.body = trace, body
        self.answer: asyncio.Future[Json | None] = asyncio.get_running_loop().create_future()


class Bridge:
    """The model for verifiers: an OpenAI-compatible server on the loopback interface."""

    def __init__(self) -> None:
        self.episodes: dict[str, Played] = {}

    async def start(self) -> str:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/chat/completions", self.complete)
        self.runner = web.AppRunner(app, access_log=None)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        await self.runner.cleanup()

    async def complete(self, request: web.Request) -> web.Response:
        trace = request.headers.get("X-Session-ID", "")
        played = self.episodes.get(trace)
        if played is None:
            return web.json_response(
                {"error": {"message": f"unknown episode {trace!r} (header X-Session-ID)"}}, status=404
            )
        asked = Asked(trace, await request.json())
        played.asked.put_nowait(asked)
        completion = await asked.answer
        if completion is None:
            return web.json_response({"error": {"message": "the episode has ended"}}, status=400)
        return web.json_response(completion)


def _config(env: Json, harness: Mapping[str, Any]) -> Any:
    """Returns verifiers' configuration; agents without their own harness or runtime get ours, in this process."""
    made = resolve_env_config(env)
    for name in agent_config_fields(made):
        about = dict(env.get(name) or {})
        env = {
            **env,
            name: {"runtime": {"type": "subprocess"}, "harness": dict(harness), **about},
        }
    return resolve_env_config(env)


def _plain(message: Json) -> Json:
    """Returns a message in our chat templates' format. Raises Refused unless it is text."""
    content = message.get("content") or ""
    if isinstance(content, list):
        if any(part.get("type") != "text" for part in content):
            raise Refused(f"a message has pictures, which {UNSUPPORTED}")
        content = "\n".join(part["text"] for part in content)
    kept = {name: message[name] for name in ("tool_calls",) if message.get(name)}
    return {"role": message["role"], "content": content, **kept}


def _completion(action: Json) -> Json:
    calls = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"])},
        }
        for number, call in enumerate(action["calls"])
    ]
    message: Json = {"role": "assistant", "content": action["text"]}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {
        "id": f"chatcmpl-{time.monotonic_ns()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": "policy",
        "choices": [choice],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
