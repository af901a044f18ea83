"""A subprocess with another Python that runs third-party environments; messages are JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slime.agents import wire
from slime.agents.child_process import end_child
from slime.agents.protocol import Action, Observation, Outcome, Start, Task
from slime.agents.tool_calls import OPEN
from slime.errors import ConfigError, EnvironmentAway

SERVE = Path(__file__).with_name("side") / "serve.py"
LONGEST_LINE = 64 << 20
START_SECONDS = 300.0
END_SECONDS = 5.0
KEPT = ("PATH", "HOME", "LANG", "TMPDIR", "NLTK_DATA", "SSL_CERT_FILE")
Json = dict[str, Any]


class Worker:
    """Starts with the first request, and again with the first one after it has exited. Requests run concurrently.

    Args:
        kind: the module `KIND_side.py` of `side/`.
        python: path of the Python in whose environment the package is installed.
        options: options of the kind, which must be JSON.
        environment: variables of the process in addition to PATH, HOME and the like; it does not receive the run's keys.
        seconds: time-out of a response.
    """

    def __init__(
        self,
        kind: str,
        python: str,
        options: Mapping[str, Any],
        environment: Mapping[str, str] | None = None,
        seconds: float = 600.0,
    ) -> None:
        self.command = [python, "-u", str(SERVE), kind, json.dumps(dict(options))]
        self.environment = {name: os.environ[name] for name in KEPT if name in os.environ} | dict(
            environment or {}
        )
        self.seconds = seconds
        self._process: Process | None = None
        self._starting: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def process(self) -> Process:
        """Returns the running process.

        Raises:
            ConfigError: the process rejected its options; the message is its own.
            EnvironmentAway: the process did not start.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop or self._starting is None:
            self._loop, self._starting, self._process = loop, asyncio.Lock(), None
        async with self._starting:
            if self._process is None or not self._process.alive:
                self._process = Process(self.seconds)
                await self._process.start(self.command, self.environment)
            return self._process

    async def close(self) -> None:
        if self._process is not None and self._loop is asyncio.get_running_loop():
            await self._process.close()
        self._process = None


class Process:
    """One process of a worker."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.number = 0
        self.waiting: dict[int, asyncio.Future[Json]] = {}
        self.process: asyncio.subprocess.Process | None = None
        self.reading: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.reading is not None and not self.reading.done()

    async def start(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Starts the process. Raises ConfigError, EnvironmentAway."""
        greeting = self.waiting[0] = asyncio.get_running_loop().create_future()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=dict(environment),
                limit=LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(
                f"cannot start the environment's Python {command[0]}: {error.strerror}"
            ) from error
        self.reading = asyncio.create_task(self._read())
        try:
            _answer(await asyncio.wait_for(greeting, START_SECONDS))
        except (ConfigError, EnvironmentAway, TimeoutError) as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise EnvironmentAway(
                    f"the process of {command[3]} environments did not start in {START_SECONDS:g} s"
                ) from error
            raise

    async def ask(self, do: str, **body: Any) -> Json:
        """Sends a request. Raises EnvironmentAway: the process has exited, did not answer in time, or failed.
        ConfigError: it rejects the request."""
        self.number += 1
        number, future = self.number, asyncio.get_running_loop().create_future()
        self.waiting[number] = future
        try:
            await self._send({"id": number, "do": do, "body": body})
            return _answer(await asyncio.wait_for(future, self.seconds))
        except TimeoutError as error:
            raise EnvironmentAway(f"the environment gave no answer in {self.seconds:g} s") from error
        finally:
            self.waiting.pop(number, None)

    async def _send(self, message: Json) -> None:
        if not self.alive or self.process is None or self.process.stdin is None:
            raise EnvironmentAway("the environment's process has ended")
        try:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            await self.process.stdin.drain()
        except OSError as error:
            raise EnvironmentAway("the environment's process has ended") from error

    async def _read(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        reason = "the environment's process has ended"
        try:
            while line := await self.process.stdout.readline():
                message = json.loads(line)
                future = self.waiting.get(message["id"])
                if future is not None and not future.done():
                    future.set_result(message)
        except (ValueError, KeyError, TypeError):
            reason = "the environment's process sent an invalid or too long line"
        finally:
            for future in self.waiting.values():
                if not future.done():
                    future.set_exception(EnvironmentAway(reason))

    async def close(self) -> None:
        """Closes its input, and kills it if it does not exit."""
        if self.process is None:
            return
        await end_child(self.process, END_SECONDS)
        if self.reading is not None:
            await self.reading


def _answer(message: Json) -> Json:
    """Returns the answer in a reply. Raises ConfigError, EnvironmentAway."""
    if "refused" in message:
        raise ConfigError(str(message["refused"]))
    if "away" in message or not isinstance(message.get("answer"), dict):
        raise EnvironmentAway(str(message.get("away", "the environment's process sent an invalid answer")))
    answer: Json = message["answer"]
    return answer


class ForeignEnvironment:
    """One episode in a worker. If its process exits, the episode starts again in a new one."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.episode = secrets.token_hex(8)
        self.process: Process | None = None

    async def reset(self, task: Task) -> Start:
        self.process = await self.worker.process()
        return wire.start_of(await self._request("reset", task=wire.task_meta(task)))

    async def step(self, action: Action) -> Observation:
        body = wire.action_body(action)
        if action.calls:  # the other side has a separate field for calls
            body["text"] = action.text.partition(OPEN)[0].rstrip()
        return wire.observation_of(await self._request("step", action=body))

    async def evaluate(self) -> Outcome:
        return wire.outcome_of(await self._request("evaluate"))

    async def close(self) -> None:
        if self.process is not None and self.process.alive:
            try:
                await self._request("close")
            except EnvironmentAway:
                pass  # the other side no longer has the episode

    async def _request(self, do: str, **body: object) -> Json:
        if self.process is None:
            raise EnvironmentAway("the environment was used before its reset")
        return await self.process.ask(do, episode=self.episode, **body)
