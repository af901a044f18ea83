"""One engine: model, weights, decode thread and request validation."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer

from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.attention import ChunkSpan, RaggedBatch
from slime.engines.embedded.engine import Engine
from slime.engines.embedded.grammar import Grammar, Grammars
from slime.engines.embedded.images import images_of_prompt, with_images
from slime.engines.embedded.lora.table import AdapterTable
from slime.engines.embedded.model import ModelError, ServedModel, build_model, first_line, stop_token_ids
from slime.engines.embedded.scheduler import SchedulerLimits
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.slab import PrefillCache
from slime.engines.embedded.text import StopStrings, load_tokenizer
from slime.engines.embedded.weights import WeightStore
from slime.engines.requests import GenerateRequest, ModelLimits, RequestError
from slime.engines.weights_file import FirstWeights, first_weights
from slime.utils.idle_processors import IdleProcessors

CPU_STORE_BYTES = 1 << 30


class EngineService:
    """The engine behind the HTTP routes; loads the model when constructed. Raises ConfigError, WeightsError."""

    def __init__(self, args: EmbeddedArguments) -> None:
        self.args = args
        self.tokenizer: Tokenizer | None = load_tokenizer(args.model_path)
        self.model: ServedModel = build_model(args.model_path, args.device, args.dtype)
        self.weights = WeightStore(
            self.model, lambda install: self.engine.replace_weights(install), args.cast_weights
        )
        self._load(first_weights(args.model_path, args.weights_file))
        total = args.max_total_tokens or _store_tokens(bytes_per_token(self.model), self.model.device)
        context_length = _context_length(args, self.model.max_positions, total)
        self.limits = ModelLimits(context_length, self.model.vocab_size, images=True)
        self.stop_ids = stop_token_ids(
            args.model_path, self.tokenizer.token_to_id if self.tokenizer else None
        )
        self._grammars = Grammars(self.tokenizer, self.model.vocab_size, self.stop_ids)
        kept = _budget(self.model.device) // 2
        limits = SchedulerLimits(args.max_running_requests, args.chunked_prefill_size, total, kept)
        self.trying = False
        self.engine = Engine(
            self.model, limits, self.threads_unless(lambda: self.trying), args.max_loaded_adapters
        )
        self.engine.version = lambda: self.weights.live.version

    def threads_unless(self, other_computes: Callable[[], bool]) -> Callable[[], int]:
        """Returns a function that returns the number of threads for this engine's next step.

        Args:
            other_computes: returns whether another engine of this process is computing; then none uses idle
                processors.
        """
        args = self.args
        if not args.use_idle_processors or self.model.device.type != "cpu":
            return lambda: args.threads
        processors = IdleProcessors(args.threads)
        return lambda: args.threads if other_computes() else processors.count()

    @property
    def adapters(self) -> AdapterTable:
        """Returns the adapters that requests may name."""
        assert self.engine.adapters is not None  # the flag is at least 1
        return self.engine.adapters

    def refresh(self) -> None:
        """Loads the live weights if they have changed. Called before serving.

        Raises:
            ConfigError, WeightsError: they cannot be loaded.
        """
        first = first_weights(self.args.model_path, self.args.weights_file)
        if (first.version, first.path) != (self.weights.live.version, self.weights.live.path):
            self._load(first)

    def _load(self, first: FirstWeights) -> None:
        self.weights.load(first.path, first.version)
        if first.checksum is not None and not self.weights.holds(first.checksum):
            raise ModelError(
                f"{first.path} does not contain the weights listed in {self.args.weights_file}: "
                "its checksum differs"
            )

    def sequence(self, request: GenerateRequest) -> Sequence:
        """Validates a request against this model. Raises RequestError with a message for the client.

        The first request with a JSON schema takes seconds, a request with pictures some tenths of one.
        """
        params = request.sampling_params
        prompt, data = with_images(
            self._prompt(request), request.image_data, self.model.placed, self.args.model_path
        )
        self.limits.check(request, prompt)
        if request.lora_path is not None:
            self.adapters.check(request.lora_path)
        stops = None
        if params.stop:
            if self.tokenizer is None:
                raise RequestError("sampling_params.stop: the model folder has no tokenizer.json")
            stops = StopStrings(self.tokenizer, params.stop, params.skip_special_tokens)
        return Sequence(
            rid=request.rid or uuid.uuid4().hex,
            prompt_ids=prompt,
            sampling=params,
            max_new_tokens=self.limits.new_tokens(len(prompt), params.max_new_tokens),
            stop_ids=frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else self.stop_ids),
            return_logprob=request.return_logprob,
            logprob_start=request.logprob_start_len if request.return_logprob else -1,
            top_logprobs=request.top_logprobs_num,
            input_temperature=request.input_logprob_temperature,
            chosen_ids=request.token_ids_logprob,
            stop_strings=stops,
            grammar=self._grammar(request, prompt),
            images=images_of_prompt(data, len(prompt), self.model.placed),
            adapter=request.lora_path,
            is_low_priority=request.priority < 0,
        )

    def _grammar(self, request: GenerateRequest, prompt: list[int]) -> Grammar | None:
        schema, begun = request.sampling_params.json_schema, request.resumed_tokens
        if begun >= len(prompt):
            raise RequestError(f"resumed_tokens: larger than the prompt ({len(prompt)} tokens)")
        if schema is None:
            return None
        if request.sampling_params.ignore_eos:
            raise RequestError("sampling_params.json_schema: with ignore_eos the answer would not end")
        return self._grammars.of_schema(schema, prompt[len(prompt) - begun :])

    def _prompt(self, request: GenerateRequest) -> list[int]:
        if request.input_ids is not None:
            prompt = request.input_ids
        elif self.tokenizer is None:
            raise RequestError("text: the model folder has no tokenizer.json; send input_ids")
        else:
            prompt = self.tokenizer.encode(request.text or "").ids
        return prompt

    def model_info(self) -> dict[str, Any]:
        live = self.weights.live
        return {
            "model_path": self.args.model_path,
            "weights_path": live.path,
            "weight_version": str(live.version),
            "checksum": live.checksum,
            "max_context_length": self.limits.context_length,
            "vocab_size": self.limits.vocabulary,
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "is_generation": True,
            "backend": "embedded",
            "pid": os.getpid(),
            "joins": True,
            "adapters": True,
        }


def _store_tokens(token_bytes: int, device: torch.device) -> int:
    """Returns the number of tokens whose keys and values fit in memory."""
    return max(1, _budget(device) // max(1, token_bytes))


def _budget(device: torch.device) -> int:
    """Returns the memory for keys and values of running requests, in bytes: 1 GiB on a CPU, 0.3 of a GPU's
    free memory.

    The prefix cache may use half as many.
    """
    return CPU_STORE_BYTES if device.type == "cpu" else int(0.3 * torch.cuda.mem_get_info(device)[0])


def _context_length(args: EmbeddedArguments, positions: int, total: int) -> int:
    """Returns the maximum tokens of a request.

    Raises:
        ModelError: the model or the KV store does not support the requested context length.
    """
    requested, most = args.context_length, min(positions, total)
    if requested is not None and requested > most:
        limit = f"the model has {positions} positions"
        if total < positions:
            limit = f"the KV cache holds {total} tokens"
        raise ModelError(f"--context-length {requested} is too long: {limit}")
    return requested or most


_TOKENS = 8
"""Sequence length of the self-check, in tokens."""


def bytes_per_token(model: ServedModel) -> int:
    """Returns the size of one token's keys and values in bytes, from a forward pass that also checks the
    model.

    The self-check compares one pass over the whole sequence with two chunks.

    Raises:
        ModelError: the logits differ, because the model keeps state outside attention (such as a state-space
            layer), or its attention is not supported.
    """
    with torch.inference_mode():
        try:
            cache = PrefillCache(_TOKENS)
            whole = _forward(model, cache, 0, _TOKENS)
            parts = PrefillCache(_TOKENS)
            _forward(model, parts, 0, _TOKENS // 2)
            chunked = _forward(model, parts, _TOKENS // 2, _TOKENS)
        except (NotImplementedError, TypeError, AttributeError) as error:
            raise ModelError(
                f"the embedded engine does not support this architecture: {first_line(error)}"
            ) from error
    tolerance = 1e-3 if model.dtype == torch.float32 else 5e-2
    if not cache.layers or not torch.allclose(whole.float(), chunked.float(), rtol=tolerance, atol=tolerance):
        raise ModelError(
            "the embedded engine does not support this architecture: it keeps state outside its attention"
        )
    return cache.bytes_per_token


def _forward(model: ServedModel, cache: PrefillCache, first: int, last: int) -> torch.Tensor:
    positions = list(range(first, last))
    batch = RaggedBatch([], [ChunkSpan(cache, 0, first, last)])
    return model.forward(positions, positions, [len(positions) - 1], batch)
