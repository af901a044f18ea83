"""Tests rollouts over the embedded engine: training uses exactly the sampled ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from slime.rollout.data_source import RolloutDataSourceWithBuffer
from slime.rollout.evaluation import evaluate
from slime.rollout.fully_async_rollout import generate_rollout_fully_async
from slime.rollout.sglang_rollout import generate_rollout
from slime.types import Sample, SampleStatus, flatten
from tests.fakes.fixtures import ParseArgs, Rows

if TYPE_CHECKING:
    from slime.arguments import Arguments


LONG = ["--rollout-max-response-len", "40"]


@pytest.fixture
def questions() -> list[dict[str, Any]]:
    return [{"input": f"What is {a} + 1?", "label": str(a + 1)} for a in range(6)]


def reference_log_probs(model: str, sample: Sample) -> list[float]:
    """Returns the log-probs [R] of the response tokens by a plain forward pass, at the sampling temperature."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = network(torch.tensor([sample.tokens])).logits[0] / sample.temperature
    table = torch.log_softmax(logits, dim=-1)
    start = sample.prompt_length
    return [table[i - 1, sample.tokens[i]].item() for i in range(start, len(sample.tokens))]


def test_log_probs_are_those_of_the_model_at_the_sampling_temperature(
    make_args: ParseArgs, questions: Rows, engine: str, model: str
) -> None:
    words = ["--apply-chat-template", "--n-samples-per-prompt", "2", "--rollout-batch-size", "2", *LONG]
    args = make_args(questions, *words, "--rollout-temperature", "0.8")
    output = generate_rollout(args, 0, RolloutDataSourceWithBuffer(args))
    samples = list(flatten(output.samples))  # type: ignore[union-attr]
    assert len(samples) == 4
    for sample in samples:
        assert sample.rollout_log_probs == pytest.approx(reference_log_probs(model, sample), abs=1e-4)
        assert sample.version_spans == [(0, 0, sample.response_length)]
        ended = sample.tokens[-1] == 2  # <|im_end|>, which is kept
        assert sample.status is (SampleStatus.COMPLETED if ended else SampleStatus.TRUNCATED)
    assert samples[0].tokens != samples[1].tokens, "each sample of a group has a seed of its own"


def test_a_repeated_rollout_gives_the_same_samples(
    make_args: ParseArgs, questions: Rows, engine: str
) -> None:
    args = make_args(questions, "--n-samples-per-prompt", "2", *LONG)
    first, second = (
        list(flatten(generate_rollout(args, 0, RolloutDataSourceWithBuffer(args)).samples))  # type: ignore[union-attr]
        for _ in range(2)
    )
    assert [sample.tokens for sample in first] == [sample.tokens for sample in second]
    for one, other in zip(first, second, strict=True):  # other requests in the batch change the last bits
        assert one.rollout_log_probs == pytest.approx(other.rollout_log_probs, abs=1e-5)


def test_an_interrupted_answer_continues_with_its_ids(
    make_args: ParseArgs, questions: Rows, engine: str, model: str
) -> None:
    """Answers of 150 tokens cannot all be complete when the first short one is; they are continued, not repeated."""
    words = ["--partial-rollout", "--rollout-batch-size", "1", "--over-sampling-batch-size", "6"]
    words += ["--custom-generate-function-path", f"{__file__}:one_short"]
    args = make_args(questions, *words, "--rollout-max-response-len", "150")
    source = RolloutDataSourceWithBuffer(args)
    generate_rollout(args, 0, source)
    parts = {group[0].index: group[0].to_dict() for group in source.buffer if group[0].response_length}
    assert parts, "nothing was interrupted"
    output = generate_rollout(args, 1, source)
    [[sample]] = output.samples  # type: ignore[union-attr]
    before = parts[sample.index]
    assert sample.tokens[: len(before["tokens"])] == before["tokens"]
    assert sample.rollout_log_probs == pytest.approx(reference_log_probs(model, sample), abs=1e-3)
    load = httpx.get(f"{engine}/server_info", trust_env=False).json()
    assert load["decoding"] == load["waiting"] == 0, "nothing is left running"


async def one_short(args: Arguments, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    """The first sample gets 5 tokens, the others 150."""
    from slime.rollout.generate import generate

    short = sample.index == 0
    params = {**sampling_params, "max_new_tokens": 5 if short else 150, "ignore_eos": True}
    return await generate(args, sample, params)


def test_a_prompt_beyond_the_engines_context_is_dropped_and_counted(
    make_args: ParseArgs, engine: str
) -> None:
    rows = [{"input": "too long " * 40_000}, {"input": "a"}, {"input": "b"}]
    args = make_args(rows, "--rollout-batch-size", "2")
    output = generate_rollout(args, 0, RolloutDataSourceWithBuffer(args))
    assert output.metrics is not None
    assert output.metrics["rollout/drop/refused"] >= 1
    assert {sample.prompt for sample in flatten(output.samples)} <= {"a", "b"}  # type: ignore[union-attr]


def test_fully_asynchronous_batches_come_from_the_engine_too(
    make_args: ParseArgs, questions: Rows, engine: str
) -> None:
    args = make_args(questions, "--rollout-batch-size", "2", *LONG)
    source = RolloutDataSourceWithBuffer(args)
    indices = [
        sample.index
        for rollout_id in range(3)
        for sample in flatten(generate_rollout_fully_async(args, rollout_id, source).samples)  # type: ignore[union-attr]
    ]
    assert len(set(indices)) == 6


def test_evaluation_is_greedy_if_requested(
    make_args: ParseArgs, questions: Rows, engine: str, tmp_path: Path
) -> None:
    path = make_args(questions).prompt_data
    words = [
        "--eval-prompt-data",
        "sums",
        path,
        "--eval-temperature",
        "0",
        "--n-samples-per-eval-prompt",
        "2",
    ]
    args = make_args(questions, *words, "--apply-chat-template", *LONG)
    samples = evaluate(args, 0).data["sums"]["samples"]
    assert len(samples) == 12
    assert all(a.tokens == b.tokens for a, b in zip(samples[::2], samples[1::2], strict=True))
