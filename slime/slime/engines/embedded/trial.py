"""Generates answers with weights that are not live, by a second copy of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from slime.engines.embedded.engine import Engine
from slime.engines.embedded.model import ServedModel, build_model
from slime.engines.embedded.reading import ReadVersion, WeightReader
from slime.engines.embedded.scheduler import SchedulerLimits
from slime.engines.embedded.sequence import Sequence as Request
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.step import EngineStep
from slime.engines.requests import GenerateRequest, RequestError, SamplingParams, TryRequest, WeightsError

ROWS = 64
PROMPT_TOKENS_A_STEP = 1024


class WeightTrial:
    """Decodes in the caller's thread, one trial at a time; other requests continue meanwhile.

    The second model shares the prepared or live tensors, so it needs memory only for its keys and values.
    Weights from a folder are loaded for the trial and freed afterwards.
    """

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._model: ServedModel | None = None
        self._discarded = 0

    def end(self) -> None:
        """Ends all trials of the prepared weights, including waiting ones, because these weights were
        discarded.

        Trials of a folder continue.
        """
        self._discarded += 1

    def answers(self, request: TryRequest) -> list[dict[str, Any]]:
        """Returns answers in order of the prompts: `ids`, `log_probs`, `text`, `ended`.

        Raises:
            WeightsError: without a folder: the version is neither prepared nor live, or was discarded
                meanwhile; or the folder cannot be read.
            RequestError: a prompt cannot be answered.
        """
        discarded = self._discarded

        def check() -> None:
            if request.model_path is None and self._discarded != discarded:
                raise WeightsError(f"weight_version {request.version} was discarded during its test")

        with self._lock:
            check()
            model = self._second()
            weights = self._weights(request)
            for name, tensor in model.tensors.items():
                tensor.data = weights.tensors[name]
            model.packed = weights.packed
            try:
                total = sum(map(len, request.prompts)) + len(request.prompts) * request.max_new_tokens
                limits = SchedulerLimits(ROWS, PROMPT_TOKENS_A_STEP, total)
                core = Engine(model, limits, self._service.threads_unless(self._serves))
                self._service.trying = True
                if request.temperature > 0:
                    answers = sampled_answers(self._service, core, request, check)
                else:
                    answers = greedy_answers(
                        self._service, core, request.prompts, request.max_new_tokens, request.drafts, check
                    )
            finally:
                self._service.trying = False
                model.packed = {}
                for tensor in model.tensors.values():
                    tensor.data = torch.empty(0)
        return [self._answer(one) for one in answers]

    def _serves(self) -> bool:
        return self._service.engine.scheduler.has_work

    def _weights(self, request: TryRequest) -> ReadVersion:
        if request.model_path is None:
            return self._service.weights.weights_of(request.version)
        # Read the serving model's tensors: the second model has none between two trials.
        served = self._service.model
        return WeightReader(served).version(request.model_path, request.version, cast=False)

    def _second(self) -> ServedModel:
        """Creates the second model once, outside inference mode, so that its parameters can refer to other
        tensors."""
        if self._model is None:
            args = self._service.args
            self._model = build_model(args.model_path, args.device, args.dtype)
        return self._model

    def _answer(self, answer: Answer) -> dict[str, Any]:
        tokenizer = self._service.tokenizer
        return {
            "ids": answer.ids,
            "log_probs": answer.log_probs,
            "text": tokenizer.decode(answer.ids, skip_special_tokens=True) if tokenizer else "",
            "ended": answer.ended,
        }


@dataclass(frozen=True)
class Answer:
    """Ids and natural log-probs [R] of an answer, and whether it ended with a stop token."""

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
) -> list[Answer]:
    """Returns one greedy answer per prompt, in order, by the model of `core`, whose own thread must not run.

    A draft is scored after its prompt in one forward pass. It is the answer up to its first token that is not
    the most likely one; only the rest is decoded (speculative decoding at temperature 0: Leviathan, Kalman
    and Matias 2023, arXiv 2211.17192).

    Args:
        most: maximum tokens of an answer.
        drafts: an earlier version's answers, one per prompt, each empty if unknown; () for none.
        before_step: called before each step; may raise to cancel.

    Raises:
        RequestError: a prompt cannot be answered, or the numbers of drafts and prompts differ.
    """
    drafts = [draft[:most] for draft in drafts] or [[] for _ in prompts]
    if len(drafts) != len(prompts):
        raise RequestError(
            f"drafts: got {len(drafts)} drafts for {len(prompts)} prompts; send one for each prompt"
        )
    read = [
        _reading(service, prompt, draft) if draft else None
        for prompt, draft in zip(prompts, drafts, strict=True)
    ]
    _run(core, [one for one in read if one is not None], before_step)
    kept = [Answer([], [], False) if one is None else _agreed(one, service.stop_ids) for one in read]
    rest = [
        None if _complete(head, most) else _decoding(service, prompt + head.ids, most - len(head.ids))
        for prompt, head in zip(prompts, kept, strict=True)
    ]
    _run(core, [one for one in rest if one is not None], before_step)
    return [head if tail is None else _joined(head, tail) for head, tail in zip(kept, rest, strict=True)]


def sampled_answers(
    service: EngineService, core: Engine, request: TryRequest, before_step: Callable[[], None]
) -> list[Answer]:
    """Returns one answer per prompt at the temperature of `request`, in order. Raises like `greedy_answers`."""
    asked = [
        _decoding(service, prompt, request.max_new_tokens, request.temperature) for prompt in request.prompts
    ]
    _run(core, asked, before_step)
    return [_joined(Answer([], [], False), one) for one in asked]


def _run(core: Engine, requests: Sequence[Request], before_step: Callable[[], None]) -> None:
    for request in requests:
        core.scheduler.add(request)
    with torch.inference_mode():
        while core.scheduler.has_work:
            before_step()
            core.step(EngineStep())


def _reading(service: EngineService, prompt: list[int], draft: list[int]) -> Request:
    """Returns a request that scores a draft.

    It starts at the prompt's last position, because the first requested position has no log-prob.
    """
    return service.sequence(
        GenerateRequest(
            input_ids=prompt + draft,
            sampling_params=SamplingParams(temperature=0.0, max_new_tokens=0),
            return_logprob=True,
            logprob_start_len=len(prompt) - 1,
            top_logprobs_num=1,
        )
    )


def _decoding(service: EngineService, prompt: list[int], most: int, temperature: float = 0.0) -> Request:
    sampling = SamplingParams(temperature=temperature, max_new_tokens=most)
    return service.sequence(GenerateRequest(input_ids=prompt, sampling_params=sampling, return_logprob=True))


def _agreed(read: Request, stop_ids: frozenset[int]) -> Answer:
    """Returns the part of a draft that is the greedy answer."""
    ids: list[int] = []
    log_probs: list[float] = []
    for (log_prob, token, _), best in zip(read.input.tokens[1:], read.input.top[1:], strict=True):
        if best is None or best[0][1] != token:
            return Answer(ids, log_probs, False)
        ids.append(token)
        log_probs.append(float(log_prob or 0.0))
    return Answer(ids, log_probs, bool(ids) and ids[-1] in stop_ids)


def _complete(head: Answer, most: int) -> bool:
    return head.ended or len(head.ids) >= most


def _joined(head: Answer, tail: Request) -> Answer:
    finish: dict[str, Any] = tail.finish or {}
    log_probs = [float(log_prob or 0.0) for log_prob, _, _ in tail.output.tokens]
    return Answer(head.ids + list(tail.output_ids), head.log_probs + log_probs, finish.get("type") == "stop")
