"""Estimates how many turns a judge model's engines score in an hour.

Decoding reads weights and the keys and values of all running requests from the GPU's memory once a token; a judge's
prompts are short compared with its replies.
"""

from __future__ import annotations

from slime.flags import Arguments
from slime.plan.hardware import Gpu
from slime.plan.memory import EngineMemory, kv_tokens
from slime.plan.placement_plan import MemoryPlan

QUESTION = 4096
"""Typical tokens of a question: the judged answer, and the message after it."""
EFFICIENCY = 0.5
"""Share of the memory bandwidth that decoding reaches; a typical value, not measured."""
KINDS = 2
"""Requests a vote: one for the score, and one for hints if the method has hints."""


def token_seconds(engine: EngineMemory, gpu: Gpu, requests: float) -> float:
    """Returns the seconds of a decode step of one engine with `requests` requests, each with a question and half of a
    reply."""
    shape = engine.shape
    weights = 2 * min(shape.parameters, shape.active * max(requests, 1.0)) / engine.gpus
    heads = max(shape.kv_heads / engine.gpus, 1.0) / shape.kv_heads
    kv_bytes = requests * QUESTION * shape.kv_bytes * heads
    return (weights + kv_bytes) / (gpu.bandwidth * 1e12 * EFFICIENCY)


def line(args: Arguments, plan: MemoryPlan) -> str | None:
    """Returns concurrent requests and turns an hour of the judge's engines; None without engines of a judge model."""
    judge = next((one for one in plan.servers if one.role == "judge"), None)
    if judge is None:
        return None
    values = vars(args)
    max_reply, votes = values.get("prm_max_new_tokens") or 4096, values.get("prm_m") or 1
    requests = (values.get("num_judge_workers") or 1) * (values.get("judge_max_requests") or 32)
    reply = max_reply / 2
    fit = max(1.0, kv_tokens(judge.engine, plan.gpu) / (QUESTION + reply))
    each = min(requests / judge.count, fit)
    seconds = token_seconds(judge.engine, plan.gpu, each)
    turns = 3600 * each * judge.count / (KINDS * votes * reply * seconds)
    return (
        f"judging  about {round(turns, -1) or 1:,.0f} turns an hour: {requests} requests at a time, {KINDS * votes} a "
        f"turn of {reply:,.0f} tokens each (half of the longest reply, which takes {max_reply * seconds:,.0f} s)"
    )
