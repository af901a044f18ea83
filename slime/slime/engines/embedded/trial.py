"""Answers of weights that are not live: a second copy of the model beside the one that serves."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from slime.engines.embedded.engine import Engine
from slime.engines.embedded.greedy import Greedy, greedy_answers
from slime.engines.embedded.model import ServedModel, build_model
from slime.engines.embedded.reading import WeightReader
from slime.engines.embedded.scheduler import SchedulerLimits
from slime.engines.embedded.service import EngineService
from slime.engines.requests import TryRequest, WeightsError

ROWS = 64
PROMPT_TOKENS_A_STEP = 1024


class WeightTrial:
    """Decodes in the caller's thread, one trial at a time; the requests of people go on meanwhile.

    The second model shares the prepared or live tensors, so it costs its own keys and values only; weights of a folder
    are read for the trial and given back behind it.
    """

    def __init__(self, service: EngineService) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._model: ServedModel | None = None
        self._discarded = 0

    def end(self) -> None:
        """What is prepared was discarded: trials of it end, also those that wait. Those of a folder go on."""
        self._discarded += 1

    def answers(self, request: TryRequest) -> list[dict[str, Any]]:
        """Greedy answers in the order of the prompts: `ids`, `log_probs`, `text`, `ended`.

        Raises:
            WeightsError: no folder is given and the version is neither prepared nor live, or it was discarded
                meanwhile; the folder cannot be read. RequestError: a prompt that cannot be answered.
        """
        discarded = self._discarded

        def check() -> None:
            if request.model_path is None and self._discarded != discarded:
                raise WeightsError(f"weight_version {request.version} was discarded while it was tried")

        with self._lock:
            check()
            model = self._second()
            for name, tensor in self._tensors(request, model).items():
                model.tensors[name].data = tensor
            try:
                total = sum(map(len, request.prompts)) + len(request.prompts) * request.max_new_tokens
                core = Engine(
                    model, SchedulerLimits(ROWS, PROMPT_TOKENS_A_STEP, total), self._service.args.threads
                )
                found = greedy_answers(
                    self._service, core, request.prompts, request.max_new_tokens, request.drafts, check
                )
            finally:
                for tensor in model.tensors.values():
                    tensor.data = torch.empty(0)
        return [self._answer(one) for one in found]

    def _tensors(self, request: TryRequest, model: ServedModel) -> dict[str, Tensor]:
        if request.model_path is None:
            found = self._service.weights.tensors_of(request.version)
        else:  # compared with the model that serves: the second one has no tensors between two trials
            served = self._service.model
            found = WeightReader(served).version(request.model_path, request.version, cast=False).tensors
        return {name: found[name] for name in model.tensors}

    def _second(self) -> ServedModel:
        """Made once, outside inference mode, so that its parameters can point to other tensors."""
        if self._model is None:
            args = self._service.args
            self._model = build_model(args.model_path, args.device, args.dtype)
        return self._model

    def _answer(self, found: Greedy) -> dict[str, Any]:
        tokenizer = self._service.tokenizer
        return {
            "ids": found.ids,
            "log_probs": found.log_probs,
            "text": tokenizer.decode(found.ids, skip_special_tokens=True) if tokenizer else "",
            "ended": found.ended,
        }
