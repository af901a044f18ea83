"""Runs any harness for an OpenAI-compatible API against the gateway; its session is read back with exact ids."""

from __future__ import annotations

import asyncio
import itertools
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from claw_base.run_folder.admin_key import known_key
from slime.agents.checks import checked_outcome
from slime.agents.protocol import Outcome, Task
from slime.agents.trajectory import Turn, as_one, one_each
from slime.errors import EnvironmentAway
from slime.types import Sample, SampleStatus, fresh

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)
GATEWAY_URL = "http://127.0.0.1:30000"
READ_TIMEOUT = 60.0  # seconds for reading a session's turns
FINISHED = {
    "stop": SampleStatus.COMPLETED,
    "tool_calls": SampleStatus.COMPLETED,
    "length": SampleStatus.TRUNCATED,
}
_NEVER_TRAINED = ("aborted", "untrainable", "side")


@dataclass(frozen=True)
class SessionEndpoint:
    """The connection of a harness to the model.

    Attributes:
        base_url: base URL for an OpenAI client. It contains the session, for harnesses that cannot set headers.
        api_key: key of the gateway; "none" if it requires none.
        headers: headers of each request: session, task, group, and that an environment rewards it.
        sampling: temperature, top_p and max_tokens that the harness must send.
    """

    base_url: str
    api_key: str
    headers: Mapping[str, str]
    sampling: Mapping[str, Any]


Harness = Callable[[SessionEndpoint, Task], Awaitable[Outcome]]
"""Plays one episode and returns its outcome. Raises EnvironmentAway if the infrastructure failed, not the model."""


def through_gateway(
    harness: Harness,
    *,
    url: str = GATEWAY_URL,
    api_key: str | None = None,
    admin_key: str | None = None,
    parallel: int = 16,
    attempts: int = 3,
    per_turn: bool = False,
) -> Callable[[GenerationSide, Sample, dict[str, Any]], Awaitable[Sample | list[Sample]]]:
    """Returns the generate function of an agent with a third-party loop.

    The gateway at `url` must record turns and serve this run's engines. The reward is {"score", "acc"}. Turns are not
    rewarded in the gateway's store, so that its methods never train on turns that slime trains on.

    Args:
        api_key: a client's key.
        admin_key: key for /admin/trajectories. By default that of a gateway in the run folder, else none, which is
            accepted by a gateway without keys of the same user on this machine.
        parallel, attempts: as in `agent`; a harness that raises EnvironmentAway, a gateway that does not answer, and a
            session without a trainable turn are retried.
        per_turn: one sample a turn. Otherwise a session is one sample, unless its prompts do not continue each other
            id by id, for example because the harness rewrites its history.
    """
    slots = asyncio.Semaphore(parallel)

    async def generate(
        args: GenerationSide, sample: Sample, sampling_params: dict[str, Any]
    ) -> Sample | list[Sample]:
        task = Task(sample.prompt, sample.label, sample.metadata)
        async with slots:
            for attempt in range(1, attempts + 1):
                session = f"slime-{uuid.uuid4().hex}"
                started = fresh(sample)
                started.metadata |= {"environments_away": attempt - 1, "session": session}
                try:
                    endpoint = _endpoint(url, session, sample, api_key, sampling_params)
                    outcome = checked_outcome(await harness(endpoint, task), "the harness")
                    key = admin_key
                    if key is None and args.run_dir:
                        key = await asyncio.to_thread(known_key, url, [Path(args.run_dir)])
                    turns = await _read(url, session, key)
                    return _finished(started, turns, outcome, per_turn)
                except (EnvironmentAway, httpx.TransportError) as error:
                    logger.warning("attempt %d for sample %s failed: %s", attempt, sample.index, error)
                    if attempt == attempts:
                        raise EnvironmentAway(str(error) or type(error).__name__) from error
        raise AssertionError("unreachable")

    return generate


def _endpoint(
    url: str, session: str, sample: Sample, api_key: str | None, params: Mapping[str, Any]
) -> SessionEndpoint:
    named = (sample.metadata.get(name) for name in ("task_id", "task_name"))
    task = next((str(name) for name in named if name), f"prompt-{sample.group_index}")
    headers = {
        "X-Session-Id": session,
        "X-Source": "environment",
        "X-Task-Id": task[:256],
        "X-Group-Id": f"group-{sample.group_index}"[:256],
    }
    sampling = {
        "temperature": params["temperature"],
        "top_p": params["top_p"],
        "max_tokens": params["max_new_tokens"],
    }
    return SessionEndpoint(f"{url.rstrip('/')}/sessions/{session}/v1", api_key or "none", headers, sampling)


async def _read(url: str, session: str, admin_key: str | None) -> list[Turn]:
    """Returns the trainable turns of a session, in order. Raises EnvironmentAway if there is none."""
    headers = {"Authorization": f"Bearer {admin_key}"} if admin_key else {}
    async with httpx.AsyncClient(headers=headers, timeout=READ_TIMEOUT, trust_env=False) as client:
        answer = await client.post(f"{url.rstrip('/')}/admin/trajectories", json={"session_ids": [session]})
    if answer.status_code != 200:
        raise EnvironmentAway(
            f"cannot read session {session} from the gateway: status {answer.status_code}: {answer.text[:200]}"
        )
    rows = [row for part in answer.json()["data"] for row in part["turns"]]
    turns = [_turn(row) for row in rows if row["state"] not in _NEVER_TRAINED and row["completion_log_probs"]]
    if not turns:
        raise EnvironmentAway(f"none of the {len(rows)} turns of session {session} can be trained on")
    return turns


def _turn(row: Mapping[str, Any]) -> Turn:
    sample = Sample(tokens=list(row["prompt_ids"]), temperature=row["sampling"].get("temperature") or 1.0)
    ids, log_probs = row["completion_ids"], row["completion_log_probs"]
    for version, start, end in row["version_spans"]:
        sample.append_response_tokens(ids[start:end], log_probs[start:end], True, version)
    sample.status = FINISHED.get(row["finish_reason"], SampleStatus.COMPLETED)
    return Turn(sample)


def _finished(
    started: Sample, turns: Sequence[Turn], outcome: Outcome, per_turn: bool
) -> Sample | list[Sample]:
    whole = not per_turn and _is_continuous(turns)
    numbers: dict[str, Any] = {**outcome.details, "turns": len(turns)}
    if whole:
        numbers["spans"] = as_one(started, turns)
    samples = [started] if whole else one_each(started, turns)
    for sample in samples:
        sample.reward = {"score": outcome.score, "acc": float(outcome.solved)}
        sample.metadata["episode"] = dict(numbers)
    return started if whole else samples


def _is_continuous(turns: Sequence[Turn]) -> bool:
    """Returns whether each prompt begins with all ids of the turn before, at one temperature; records the
    observations in between."""
    for before, after in itertools.pairwise(turns):
        ids, prompt = before.sampled.tokens, after.sampled.tokens[: after.sampled.prompt_length]
        if prompt[: len(ids)] != ids or before.sampled.temperature != after.sampled.temperature:
            return False
        before.shown = prompt[len(ids) :]
    return True
