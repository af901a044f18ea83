"""Generates one sample: sends token ids to an engine and receives token ids, never through text."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from slime.errors import ConfigError, EngineError
from slime.rollout.dataset import template_variables
from slime.rollout.engine_pool import version_number
from slime.rollout.state import GenerateState, current_interrupt
from slime.types import Sample, SampleStatus
from slime.vision.pictures import check_prompt, image_fields, pictures_of
from slime.vision.place import ImagePlace

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

FINISHED = {
    "stop": SampleStatus.COMPLETED,
    "length": SampleStatus.TRUNCATED,
    "abort": SampleStatus.ABORTED,
}

POOL_SHARE = 0.9
"""Share of a sample's time limit for the engine pool, which thus fails a little earlier, with the error of
the last attempt."""


async def generate(args: GenerationSide, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """Continues `sample` with one request, up to `max_new_tokens` response tokens in total.

    Sends the ids of the prompt and of the tokens so far, so an interrupted answer continues from there.

    Raises:
        ConfigError: the prompt is a list of messages without --apply-chat-template, or has images that the
            model or the engine does not support.
        EngineRefused, EngineAway: see `EnginePool.generate`.
    """
    state = GenerateState.of(args)
    if not sample.tokens:
        if pictures_of(sample.prompt):  # decoding images is slow
            prompt = await asyncio.to_thread(prompt_with_images, state, sample)
            sample.tokens, sample.images = prompt
        else:
            sample.tokens = prompt_ids(state, sample)
    limit = sampling_params["max_new_tokens"] - sample.response_length
    if args.rollout_max_context_len is not None:
        limit = min(limit, args.rollout_max_context_len - len(sample.tokens))
    if limit < 1:
        sample.status = SampleStatus.TRUNCATED
        return sample
    if sampling_params["temperature"] > 0:  # log-probs of greedy answers are at temperature 1
        sample.temperature = sampling_params["temperature"]
    params = {name: value for name, value in sampling_params.items() if value is not None}
    seed = params.pop("sampling_seed", seed_of(args.rollout_seed, sample))
    body = {
        "input_ids": sample.tokens,
        "sampling_params": {**params, "max_new_tokens": limit, "sampling_seed": seed},
        "return_logprob": True,
        **image_fields(args.rollout_backend, sample.tokens, sample.images, pictures_of(sample.prompt)),
    }
    timeout = args.rollout_sample_timeout * POOL_SHARE
    answer = await state.pool.generate(body, timeout, current_interrupt.get())
    check_prompt(answer, sample.images, len(sample.tokens))
    add_answer(sample, answer)
    return sample


def prompt_with_images(state: GenerateState, sample: Sample) -> tuple[list[int], list[ImagePlace]]:
    """Returns ids [T] of messages with pictures, rendered by the model's template, and the places of their
    images."""
    reader = state.reader
    messages = cast("list[dict[str, Any]]", sample.prompt)
    tools, variables = sample.metadata.get("tools"), template_variables(state.args)
    text = state.tokenizer.render(messages, tools, answer_next=True, variables=variables)
    return reader.placed(state.tokenizer.encode(text), pictures_of(messages))


def prompt_ids(state: GenerateState, sample: Sample) -> list[int]:
    """Returns ids of a text prompt [T]."""
    if not isinstance(sample.prompt, str):
        raise ConfigError(
            "the prompt is a list of messages: add --apply-chat-template, or a --custom-generate-function-path "
            "that reads messages"
        )
    return state.tokenizer.encode(sample.prompt)


def seed_of(rollout_seed: int, sample: Sample, position: int | None = None) -> int:
    """Returns a seed for one sample and position, reproducible over runs.

    Args:
        position: response tokens so far; default: those of `sample`.
    """
    text = f"{rollout_seed}/{sample.index}/{sample.response_length if position is None else position}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & 0x7FFFFFFF


def add_answer(sample: Sample, answer: dict[str, Any]) -> None:
    """Appends an engine's output: ids, log-probs, the weight version of each token; sets the status.

    Raises:
        EngineError: log-probs are missing, or the finish reason is unknown.
    """
    meta = answer.get("meta_info") or {}
    reason = (meta.get("finish_reason") or {}).get("type")
    if reason not in FINISHED:
        raise EngineError(f"an engine returned the unknown finish reason {meta.get('finish_reason')!r}")
    pairs: Sequence[Sequence[Any]] = meta.get("output_token_logprobs") or []
    ids = [int(pair[1]) for pair in pairs]
    if ids != (answer.get("output_ids") or ids) or any(pair[0] is None for pair in pairs):
        raise EngineError("an engine returned log-probs of other tokens than those of its answer")
    count = meta.get("completion_tokens", len(ids))
    if count != len(ids):
        raise EngineError(
            f"an engine returned {len(ids)} log-probs for {count} tokens; rollouts need one per token"
        )
    log_probs = [float(pair[0]) for pair in pairs]
    texts: list[str] = [answer.get("text") or ""]
    for version, start, end in _spans(meta, len(ids)):
        text = texts.pop() if texts else ""
        sample.append_response_tokens(ids[start:end], log_probs[start:end], True, version, text)
    if not ids:
        sample.response += texts.pop()
    sample.status = FINISHED[reason]


def _spans(meta: dict[str, Any], length: int) -> list[tuple[int | None, int, int]]:
    """Returns (weight version, start, end) spans that cover all tokens of one answer."""
    versions = meta.get("weight_versions")
    if not versions:
        named = meta.get("weight_version")
        return [(None if named is None else version_number(named), 0, length)] if length else []
    spans: list[tuple[int | None, int, int]] = [
        (version_number(item["version"]), int(item["start"]), int(item["end"])) for item in versions
    ]
    spans = [span for span in spans if span[2] > span[1]]
    ends = [0, *(end for _, _, end in spans)]
    if [start for _, start, _ in spans] != ends[:-1] or ends[-1] != length:
        raise EngineError(
            f"an engine's weight versions {versions} do not cover the {length} tokens of its answer"
        )
    return spans
