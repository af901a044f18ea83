"""What a request asks of vLLM: the arguments of its SamplingParams. Refuses what vLLM would do in another way."""

from __future__ import annotations

from typing import Any

from slime.engines.requests import GenerateRequest, ModelLimits, RequestError

SEEDS = 1 << 63  # those of torch's generators; another would end vLLM's worker
COLDEST = 0.01
"""vLLM raises a lower temperature to this one."""


def sampling_options(request: GenerateRequest, prompt: list[int], limits: ModelLimits) -> dict[str, Any]:
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


def new_tokens(request: GenerateRequest, prompt: int, limits: ModelLimits) -> int:
    """Tokens that the answer may have; 0 asks for the prompt's log-probs alone, for which vLLM samples one token."""
    return limits.new_tokens(prompt, request.sampling_params.max_new_tokens, least=1)


def _check(request: GenerateRequest, prompt: list[int], limits: ModelLimits) -> None:
    params, chosen = request.sampling_params, request.token_ids_logprob
    limits.check(request, prompt)
    if chosen and (request.top_logprobs_num or request.logprob_start_len >= 0):
        raise RequestError(
            "token_ids_logprob: vLLM gives them for sampled tokens alone, and without top_logprobs_num"
        )
    if not params.greedy and params.temperature < COLDEST:
        raise RequestError(
            f"sampling_params.temperature: vLLM samples at none between 0 and {COLDEST}; 0 is greedy"
        )
