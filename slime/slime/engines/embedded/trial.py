"""Answers of weights that are prepared and not live: a second copy of the model beside the one that serves."""

from __future__ import annotations

import threading
from typing import Any

import torch

from slime.engines.embedded.engine import Engine
from slime.engines.embedded.model import ServedModel, build_model
from slime.engines.embedded.scheduler import SchedulerLimits
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.step import EngineStep
from slime.engines.requests import GenerateRequest, SamplingParams, TryRequest

ROWS = 64
PROMPT_TOKENS_A_STEP = 1024


class WeightTrial:
    """Decodes in the caller's thread, one trial at a time; the requests of people go on meanwhile.

    The second model shares the prepared tensors, so it costs its own keys and values only.
    """

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._model: ServedModel | None = None

    def answers(self, request: TryRequest) -> list[dict[str, Any]]:
        """Greedy answers in the order of the prompts: `ids`, `log_probs`, `text`, `ended`.

        Raises:
            WeightsError: the version is neither prepared nor live. RequestError: a prompt that cannot be answered.
        """
        with self._lock:
            tensors = self._service.weights.tensors_of(request.version)
            sequences = [self._sequence(prompt, request.max_new_tokens) for prompt in request.prompts]
            model = self._second()
            for name, tensor in model.tensors.items():
                tensor.data = tensors[name]
            total = sum(len(one.prompt_ids) + one.max_new_tokens for one in sequences)
            limits = SchedulerLimits(ROWS, PROMPT_TOKENS_A_STEP, total)
            core = Engine(model, limits, self._service.args.threads)
            for sequence in sequences:
                core.scheduler.add(sequence)
            with torch.inference_mode():
                while core.scheduler.has_work:
                    core.step(EngineStep())
            for tensor in model.tensors.values():
                tensor.data = torch.empty(0)
        return [self._answer(sequence) for sequence in sequences]

    def _second(self) -> ServedModel:
        """Made once, outside inference mode, so that its parameters can point to other tensors."""
        if self._model is None:
            args = self._service.args
            self._model = build_model(args.model_path, args.device, args.dtype)
        return self._model

    def _sequence(self, prompt: list[int], most: int) -> Sequence:
        sampling = SamplingParams(temperature=0.0, max_new_tokens=most)
        return self._service.sequence(
            GenerateRequest(input_ids=prompt, sampling_params=sampling, return_logprob=True)
        )

    def _answer(self, sequence: Sequence) -> dict[str, Any]:
        ids, tokenizer = list(sequence.output_ids), self._service.tokenizer
        return {
            "ids": ids,
            "log_probs": [float(log_prob or 0.0) for log_prob, _, _ in sequence.output.tokens],
            "text": tokenizer.decode(ids, skip_special_tokens=True) if tokenizer else "",
            "ended": (sequence.finish or {}).get("type") == "stop",
        }
