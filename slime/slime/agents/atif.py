"""Trajectories as ATIF, Harbor's agent trajectory format, which other viewers show."""

from __future__ import annotations

import json
from typing import Any

from slime.agents.recorded import SeenTrajectory, SeenTurn
from slime.agents.tool_calls import loose_calls

VERSION = "ATIF-v1.7"
Json = dict[str, Any]


def atif(trajectory: SeenTrajectory, model: str) -> Json:
    """One document: steps of user and agent, with token ids, log-probs, rewards and what tools answered.

    Args:
        model: name of the model.
    """
    first = trajectory.first
    turns = trajectory.turns
    steps = [*_opening(trajectory), *(step for turn in turns for step in _steps(turn))]
    return {
        "schema_version": VERSION,
        "session_id": f"rollout-{trajectory.rollout}-sample-{first.index}",
        "agent": {"name": "slime", "version": "1", "model_name": model},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {
            "total_prompt_tokens": sum(len(turn.prompt_ids) for turn in turns),
            "total_completion_tokens": sum(len(turn.ids) for turn in turns),
            "total_steps": len(steps),
        },
        "extra": {
            "group": first.group_index,
            "status": trajectory.samples[-1].status.value,
            "reward": first.reward,
            "episode": first.metadata.get("episode"),
        },
    }


def _opening(trajectory: SeenTrajectory) -> list[Json]:
    prompt = trajectory.first.prompt
    if isinstance(prompt, str):
        return [{"source": "user", "message": prompt or trajectory.prompt}]
    roles = {"system": "system", "developer": "system", "assistant": "agent"}
    return [
        {"source": roles.get(str(message.get("role")), "user"), "message": str(message.get("content") or "")}
        for message in prompt
    ]


def _steps(turn: SeenTurn) -> list[Json]:
    """The agent's step. What came back belongs to its calls; without any it was said by the user."""
    metrics: Json = {
        "prompt_tokens": len(turn.prompt_ids),
        "completion_tokens": len(turn.ids),
        "prompt_token_ids": turn.prompt_ids,
        "completion_token_ids": turn.ids,
        "logprobs": turn.log_probs,
        "extra": {"weight_versions": turn.versions},
    }
    judged = None if turn.judge is None else turn.judge["mean_score"]
    known = {"step_score": turn.score, "judge_score": judged, "advantage": turn.advantage}
    extra = {name: value for name, value in known.items() if value is not None}
    step: Json = {
        "source": "agent",
        "message": turn.text,
        "metrics": metrics,
        **({"extra": extra} if extra else {}),
    }
    calls = [
        {"tool_call_id": f"call-{number}", "function_name": name, "arguments": arguments}
        for number, (name, arguments) in enumerate(loose_calls(turn.text), 1)
    ]
    if not calls:
        return [step, {"source": "user", "message": turn.shown}] if turn.shown else [step]
    step["tool_calls"] = calls
    if turn.shown:
        step["observation"] = {
            "results": [{"source_call_id": calls[-1]["tool_call_id"], "content": turn.shown}]
        }
    return [step]


def atif_text(trajectory: SeenTrajectory, model: str) -> str:
    """The document as JSON, with its end of line."""
    return json.dumps(atif(trajectory, model), ensure_ascii=False, indent=1) + "\n"
