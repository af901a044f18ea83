"""The embedded engine's core in this process, without thread and HTTP: batches of prompts in, answers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.sequence import Sequence as Request
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.step import EngineStep
from slime.engines.embedded.trial import greedy_answers
from slime.engines.requests import GenerateRequest, SamplingParams
from slime.errors import EngineError

ROWS = 256
PROMPT_TOKENS_A_STEP = 4096


@dataclass(frozen=True)
class Reply:
    """Sampled ids [R] with their log-probs [R] at the sampling temperature; `finish` is "stop" or "length"."""

    ids: list[int]
    log_probs: list[float]
    spans: list[tuple[int, int, int]]
    finish: str


class LocalEngine:
    """One model that answers; `version` is recorded in its answers."""

    def __init__(self, model_path: str) -> None:
        arguments = EmbeddedArguments(
            model_path=model_path,
            device="cpu",
            max_running_requests=ROWS,
            chunked_prefill_size=PROMPT_TOKENS_A_STEP,
        )
        self._service = EngineService(arguments)
        self._core = self._service.engine
        self._core.version = lambda: self.version
        self._first = {name: tensor.detach().clone() for name, tensor in self._service.model.tensors.items()}
        self.version = 0

    def install(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Serves these weights from now on; a live engine loads them from a folder, this one from memory.

        Raises:
            EngineError: a tensor is missing, or has another shape or dtype.
        """
        for name, live in self._service.model.tensors.items():
            new = weights.get(name)
            if new is None or new.shape != live.shape or new.dtype != live.dtype:
                raise EngineError(f"{name} is missing in the new weights, or does not fit")
            live.data = new.detach().clone()
        # Cached states of the old weights must not be used for prompts of the new ones.
        self._service.engine.scheduler.restart_prefills()
        self.version = version

    def tensors(self) -> Mapping[str, Tensor]:
        """Returns the served tensors by name."""
        return {name: tensor.data for name, tensor in self._service.model.tensors.items()}

    def reset(self) -> None:
        """Restores the model as it was loaded, as version 0."""
        self.install(self._first, 0)

    def generate(
        self,
        prompts: Sequence[list[int]],
        seeds: Sequence[int],
        temperature: float,
        max_new_tokens: int = 200,
    ) -> list[Reply]:
        """Returns one reply for each prompt, in order. The same prompts and seeds give the same replies.

        Raises:
            EngineError: a reply was aborted.
        """
        requests = [
            self._service.sequence(
                GenerateRequest(
                    input_ids=prompt,
                    sampling_params=SamplingParams(
                        temperature=temperature, max_new_tokens=max_new_tokens, seed=seed
                    ),
                    return_logprob=True,
                )
            )
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        for request in requests:
            self._core.scheduler.add(request)
        with torch.inference_mode():
            while self._core.scheduler.has_work:
                self._core.step(EngineStep())
        return [_reply(request) for request in requests]

    def greedy(
        self, prompts: Sequence[list[int]], max_new_tokens: int, drafts: Sequence[list[int]] = ()
    ) -> list[Reply]:
        """Returns greedy replies, as the engine does for candidate weights."""
        answers = greedy_answers(self._service, self._core, prompts, max_new_tokens, drafts)
        return [Reply(one.ids, one.log_probs, [], "stop" if one.ended else "length") for one in answers]


def _reply(request: Request) -> Reply:
    finish = request.finish or {}
    if finish.get("type") not in ("stop", "length"):
        raise EngineError(f"a reply ended with {finish}")
    log_probs = [float(log_prob or 0.0) for log_prob, _, _ in request.output.tokens]
    return Reply(list(request.output_ids), log_probs, list(request.spans), str(finish["type"]))
