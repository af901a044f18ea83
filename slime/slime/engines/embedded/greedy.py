"""Greedy answers of one model, in one batch; where an earlier answer is known, only what differs from it is decoded.

A draft is read behind its prompt in one forward pass. Up to its first token that is not the likeliest it is the answer
(speculative decoding at temperature 0: Leviathan, Kalman and Matias 2023, arXiv 2211.17192).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from slime.engines.embedded.engine import Engine
from slime.engines.embedded.sequence import Sequence as Request
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.step import EngineStep
from slime.engines.requests import GenerateRequest, RequestError, SamplingParams


@dataclass(frozen=True)
class Greedy:
    """Ids and natural log-probs [R] of an answer, and whether it ended by itself."""

    ids: list[int]
    log_probs: list[float]
    ended: bool


def greedy_answers(
    service: EngineService,
    core: Engine,
    prompts: Sequence[list[int]],
    most: int,
    drafts: Sequence[list[int]] = (),
    before_step: Callable[[], None] = lambda: None,
) -> list[Greedy]:
    """One answer a prompt, in order, of the model of `core`, whose own thread must not run.

    Args:
        most: tokens of the longest answer.
        drafts: what an earlier version answered, one a prompt, empty where nothing is known; none at all: ().
        before_step: may raise, to give up.

    Raises:
        RequestError: a prompt that cannot be answered, or another number of drafts than of prompts.
    """
    drafts = [draft[:most] for draft in drafts] or [[] for _ in prompts]
    if len(drafts) != len(prompts):
        raise RequestError(f"drafts: {len(drafts)} for {len(prompts)} prompts")
    read = [
        _reading(service, prompt, draft) if draft else None
        for prompt, draft in zip(prompts, drafts, strict=True)
    ]
    _run(core, [one for one in read if one is not None], before_step)
    kept = [Greedy([], [], False) if one is None else _agreed(one, service.stop_ids) for one in read]
    rest = [
        None if _complete(head, most) else _decoding(service, prompt + head.ids, most - len(head.ids))
        for prompt, head in zip(prompts, kept, strict=True)
    ]
    _run(core, [one for one in rest if one is not None], before_step)
    return [head if tail is None else _joined(head, tail) for head, tail in zip(kept, rest, strict=True)]


def _run(core: Engine, requests: Sequence[Request], before_step: Callable[[], None]) -> None:
    for request in requests:
        core.scheduler.add(request)
    with torch.inference_mode():
        while core.scheduler.has_work:
            before_step()
            core.step(EngineStep())


def _reading(service: EngineService, prompt: list[int], draft: list[int]) -> Request:
    """Scores a draft. The first position that is asked for has no log-prob, so it is the prompt's last."""
    return service.sequence(
        GenerateRequest(
            input_ids=prompt + draft,
            sampling_params=SamplingParams(temperature=0.0, max_new_tokens=0),
            return_logprob=True,
            logprob_start_len=len(prompt) - 1,
            top_logprobs_num=1,
        )
    )


def _decoding(service: EngineService, prompt: list[int], most: int) -> Request:
    sampling = SamplingParams(temperature=0.0, max_new_tokens=most)
    return service.sequence(GenerateRequest(input_ids=prompt, sampling_params=sampling, return_logprob=True))


def _agreed(read: Request, stop_ids: frozenset[int]) -> Greedy:
    """The part of a draft that is the greedy answer."""
    ids: list[int] = []
    log_probs: list[float] = []
    for (log_prob, token, _), best in zip(read.input.tokens[1:], read.input.top[1:], strict=True):
        if best is None or best[0][1] != token:
            return Greedy(ids, log_probs, False)
        ids.append(token)
        log_probs.append(float(log_prob or 0.0))
    return Greedy(ids, log_probs, bool(ids) and ids[-1] in stop_ids)


def _complete(head: Greedy, most: int) -> bool:
    return head.ended or len(head.ids) >= most


def _joined(head: Greedy, tail: Request) -> Greedy:
    finish: dict[str, Any] = tail.finish or {}
    log_probs = [float(log_prob or 0.0) for log_prob, _, _ in tail.output.tokens]
    return Greedy(head.ids + list(tail.output_ids), head.log_probs + log_probs, finish.get("type") == "stop")
