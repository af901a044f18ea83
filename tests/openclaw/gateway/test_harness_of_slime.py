"""A harness that knows only an address plays with the gateway, and slime reads back its trajectory with exact ids."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from slime.agents import Outcome, Task
from slime.agents.through_gateway import SessionEndpoint, through_gateway
from slime.errors import EnvironmentAway
from slime.plugins import load_attr
from slime.types import Sample, SampleStatus
from tests import ROOT
from tests.fakes.running_gateway import KEY, RunningGateway, StartGateway

PARAMS = {"temperature": 0.7, "top_p": 1.0, "max_new_tokens": 300}
play: Any = load_attr(f"{ROOT}/slime/examples/my_agent/harness.py:play")
CALL = f"<tool_call>\n{json.dumps({'name': 'guess', 'arguments': {'number': 4}})}\n</tool_call>"


def generate(gateway: RunningGateway, harness: Any, label: str = "7", **options: Any) -> Any:
    """Returns the result of an episode."""
    made = through_gateway(harness, url=gateway.url, api_key=KEY, admin_key=KEY, **options)
    sample = Sample(
        group_index=5, index=40, prompt="Find my number.", label=label, metadata={"task_name": "t"}
    )
    return asyncio.run(made(None, sample, PARAMS))  # type: ignore[arg-type]


@pytest.fixture
def guessing(start_gateway: StartGateway) -> RunningGateway:
    """A gateway whose model always guesses 4."""
    gateway = start_gateway(admin_key=KEY)
    gateway.says(CALL)
    return gateway


def test_a_trajectory_has_the_stored_ids_log_probs_and_versions(
    guessing: RunningGateway,
) -> None:
    sample = generate(guessing, play)
    assert sample.reward == {"score": -1.0, "acc": 0.0} and sample.status is SampleStatus.COMPLETED
    assert (sample.group_index, sample.index, sample.temperature) == (5, 40, 0.7)
    about = sample.metadata["episode"]
    assert (about["turns"], about["tool_calls"]) == (6, 6)
    [stored] = guessing.store.turns.of_sessions([sample.metadata["session"]], 100)[0].values()
    response = sample.tokens[sample.prompt_length :]
    assert sample.tokens == stored[-1].prompt_ids + stored[-1].completion_ids
    for turn, (begin, end) in zip(stored, about["spans"], strict=True):
        assert response[begin:end] == turn.completion_ids
        assert sample.rollout_log_probs[begin:end] == turn.completion_log_probs
        assert set(sample.loss_mask[begin:end]) == {1} and not any(sample.loss_mask[end : end + 1])
    assert sample.versions == {3}
    assert {(turn.source, turn.task_id, turn.group_id) for turn in stored} == {
        ("environment", "t", "group-5")
    }
    assert {str(turn.state) for turn in stored} == {"captured"}, "the store's own methods train on none of it"


def test_one_sample_per_turn_has_the_same_turns(guessing: RunningGateway) -> None:
    samples = generate(guessing, play, per_turn=True)
    assert [sample.metadata["turn"] for sample in samples] == list(range(6))
    [stored] = guessing.store.turns.of_sessions([samples[0].metadata["session"]], 100)[0].values()
    assert [sample.tokens for sample in samples] == [turn.prompt_ids + turn.completion_ids for turn in stored]
    assert generate(guessing, play, label="4").reward == {"score": 0.9, "acc": 1.0}


def test_a_harness_that_rewrites_its_history_produces_one_sample_per_turn(guessing: RunningGateway) -> None:
    async def forgetful(endpoint: SessionEndpoint, task: Task) -> Outcome:
        for text in ("a", "b"):
            body = {"messages": [{"role": "user", "content": text}]}
            path = f"/sessions/{endpoint.headers['X-Session-Id']}/v1/chat/completions"
            await asyncio.to_thread(guessing.http.post, path, json=body)
        return Outcome(1.0, True)

    assert len(generate(guessing, forgetful)) == 2


def test_infrastructure_failures_are_retried_and_never_count_as_failed_tasks(
    guessing: RunningGateway,
) -> None:
    calls: list[str] = []

    async def fragile(endpoint: SessionEndpoint, task: Task) -> Outcome:
        calls.append(endpoint.headers["X-Session-Id"])
        if len(calls) == 1:
            raise EnvironmentAway("gone")
        return (
            await play(endpoint, task) if len(calls) > 2 else Outcome(1.0, True)
        )  # the second one stores no turn

    assert generate(guessing, fragile).metadata["environments_away"] == 2 and len(set(calls)) == 3

    async def idle(endpoint: SessionEndpoint, task: Task) -> Outcome:
        return Outcome(1.0, True)

    with pytest.raises(EnvironmentAway, match="none of the 0 turns"):
        generate(guessing, idle)
    with pytest.raises(EnvironmentAway, match="status 401"):
        made = through_gateway(play, url=guessing.url, api_key=KEY, admin_key="wrong", attempts=1)
        asyncio.run(made(None, Sample(prompt="x", label="4"), PARAMS))  # type: ignore[arg-type]
