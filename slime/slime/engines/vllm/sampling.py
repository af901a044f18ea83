"""What a request asks of vLLM: the arguments of its SamplingParams. Refuses what vLLM would do in another way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slime.engines.embedded.protocol import GenerateRequest, RequestError

DEFAULT_NEW_TOKENS = 128
SEEDS = 1 << 63  # those of torch's generators; another would end vLLM's worker
COLDEST = 0.01
"""vLLM raises a lower temperature to this one."""


@dataclass(frozen=True)
class Limits:
    """What the served model takes, in tokens."""

    context_length: int
    vocabulary: int


def sampling_options(request: GenerateRequest, prompt: list[int], limits: Limits) -> dict[str, Any]:
    """Arguments of SamplingParams. Raises RequestError with a message for the client."""
    _check(request, prompt, limits)
    params = request.sampling_params
    scored = request.return_logprob and request.logprob_start_len >= 0
    seed = params.seed if params.seed is not None else params.sampling_seed
    return {
        "max_tokens": max(1, new_tokens(request, len(prompt), limits)),
        "temperature": 0.0 if params.greedy else params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "frequency_penalty": params.frequency_penalty,
        "presence_penalty": params.presence_penalty,
        "repetition_penalty": params.repetition_penalty,
        "logit_bias": params.logit_bias or None,
        "seed": None if seed is None else seed % SEEDS,
        "stop": params.stop,
        "stop_token_ids": params.stop_token_ids,
        "ignore_eos": params.ignore_eos,
        "skip_special_tokens": params.skip_special_tokens,
        "include_stop_str_in_output": params.no_stop_trim,
        "logprobs": request.top_logprobs_num if request.return_logprob else None,
        "logprob_token_ids": (request.token_ids_logprob or None) if request.return_logprob else None,
        "prompt_logprobs": request.top_logprobs_num if scored else None,
        "flat_logprobs": True,
    }


def new_tokens(request: GenerateRequest, prompt: int, limits: Limits) -> int:
    """Tokens that the answer may have; 0 asks for the prompt's log-probs alone, for which vLLM samples one token."""
    wanted, room = request.sampling_params.max_new_tokens, limits.context_length - prompt
    if room < 1:
        raise RequestError(
            f"the prompt of {prompt} tokens fills the context of {limits.context_length} tokens"
        )
    if wanted is not None and wanted > room:
        raise RequestError(
            f"the request needs {prompt + wanted} tokens ({prompt} prompt + {wanted} max_new_tokens), "
            f"the context has {limits.context_length}"
        )
    return min(DEFAULT_NEW_TOKENS, room) if wanted is None else wanted


def _check(request: GenerateRequest, prompt: list[int], limits: Limits) -> None:
    params, chosen = request.sampling_params, request.token_ids_logprob or []
    if not prompt:
        raise RequestError("input_ids: the prompt must have at least one token")
    ids = {
        "input_ids": prompt,
        "token_ids_logprob": chosen,
        "sampling_params.logit_bias": list(params.logit_bias),
    }
    for name, values in ids.items():
        if values and not (min(values) >= 0 and max(values) < limits.vocabulary):
            raise RequestError(f"{name}: ids must be between 0 and {limits.vocabulary - 1}")
    if request.top_logprobs_num > limits.vocabulary:
        raise RequestError(f"top_logprobs_num: the vocabulary has only {limits.vocabulary} tokens")
    if request.logprob_start_len >= len(prompt):
        raise RequestError(
            f"logprob_start_len: {request.logprob_start_len} is beyond the prompt ({len(prompt)} tokens)"
        )
    if chosen and (request.top_logprobs_num or request.logprob_start_len >= 0):
        raise RequestError(
            "token_ids_logprob: vLLM gives them for sampled tokens alone, and without top_logprobs_num"
        )
    if not params.greedy and params.temperature < COLDEST:
        raise RequestError(
            f"sampling_params.temperature: vLLM samples at none between 0 and {COLDEST}; 0 is greedy"
        )
