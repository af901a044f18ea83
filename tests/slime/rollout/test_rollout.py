"""Tests the default rollout over a fake engine: every group ends in exactly one place, and is counted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slime.errors import ConfigError, DataError, EngineError
from slime.rollout.data_source import RolloutDataSourceWithBuffer
from slime.rollout.filters import DynamicFilterOutput
from slime.rollout.sglang_rollout import generate_rollout
from slime.types import RolloutFnTrainOutput, Sample, SampleStatus, flatten
from tests.fakes.fixtures import AddEngine, ParseArgs, Rows
from tests.fakes.rollout_engine import FakeEngine

if TYPE_CHECKING:
    from slime.arguments import Arguments


HERE = __file__


def rollout(args: Arguments, source: Any, rollout_id: int = 0) -> RolloutFnTrainOutput:
    output = generate_rollout(args, rollout_id, source)
    assert isinstance(output, RolloutFnTrainOutput)
    assert output.metrics is not None
    return output


def groups_of(output: RolloutFnTrainOutput) -> list[Any]:
    return [next(flatten(group)).group_index for group in output.samples]


def slow_prompt(args: Arguments, text: str) -> Any:
    """Recognises the requests of one prompt by its ids."""
    from slime.rollout.tokenizer import load_tokenizer

    ids = load_tokenizer(args.hf_checkpoint).encode(text)
    return lambda request: request["input_ids"][: len(ids)] == ids


# Attributes of a sample


def test_a_sample_has_the_ids_log_probs_and_versions_of_the_engine(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    fake.version = 7
    args = make_args(
        rows, "--n-samples-per-prompt", "2", "--rollout-batch-size", "2", "--rollout-temperature", "0.6"
    )
    output = rollout(args, RolloutDataSourceWithBuffer(args))
    samples = list(flatten(output.samples))
    assert len(samples) == 4 == len(fake.requests)
    for sample in samples:
        assert sample.status is SampleStatus.COMPLETED
        assert sample.rollout_log_probs == [-1.0 - token / 1000 for token in sample.tokens[-4:]]
        assert sample.version_spans == [(7, 0, 4)]
        assert sample.temperature == 0.6
        assert sample.reward in (0.0, 1.0)
    assert len({request["sampling_params"]["sampling_seed"] for request in fake.requests}) == 4
    assert all(request["return_logprob"] and request["rid"] for request in fake.requests)


def test_the_same_seed_gives_the_same_batch(make_args: ParseArgs, rows: Rows, fake: FakeEngine) -> None:
    args = make_args(rows, "--n-samples-per-prompt", "2")
    batches = [rollout(args, RolloutDataSourceWithBuffer(args)) for _ in range(2)]
    first, second = ([s.to_dict() for s in flatten(batch.samples)] for batch in batches)
    assert first == second


def test_an_answer_is_limited_to_the_context(make_args: ParseArgs, rows: Rows, fake: FakeEngine) -> None:
    fake.length = lambda request: 100
    args = make_args(rows[:4], "--rollout-max-context-len", "8")
    for sample in flatten(rollout(args, RolloutDataSourceWithBuffer(args)).samples):
        assert len(sample.tokens) == 8
        assert sample.status is SampleStatus.TRUNCATED


# Over-sampling, interruption, no lost groups


def test_a_full_batch_interrupts_the_other_groups_without_losing_them(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    """Long-tailed answers: every group occurs exactly once before any group of the next epoch."""
    chance = random.Random(1)
    lengths: dict[str, int] = {}
    fake.length = lambda r: lengths.setdefault(str(r["input_ids"]), 1 + int(chance.paretovariate(1.0)))
    fake.seconds_per_token = 0.002
    words = [
        "--rollout-batch-size",
        "4",
        "--over-sampling-batch-size",
        "10",
        "--rollout-max-response-len",
        "60",
    ]
    args = make_args(rows, *words)
    source = RolloutDataSourceWithBuffer(args)
    seen: Counter[Any] = Counter()
    returned = 0.0
    for rollout_id in range(5):
        output = rollout(args, source, rollout_id)
        assert len(output.samples) == 4
        seen.update(groups_of(output))
        assert output.metrics is not None
        returned += output.metrics["rollout/returned_groups"]
    assert returned > 0
    assert max(seen.values()) == 1
    assert source.group_index <= 20 + 10
    assert set(seen) | {group[0].group_index for group in source.buffer} == set(range(source.group_index))


def test_an_interrupted_answer_restarts_or_continues(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    """With --partial-rollout the second part has the second weights; on request only it is trained."""
    fake.seconds_per_token = 0.01
    common = [
        "--rollout-batch-size",
        "1",
        "--over-sampling-batch-size",
        "2",
        "--rollout-max-response-len",
        "50",
    ]
    for partial in (False, True):
        fake.version = 1
        words = [*common, "--partial-rollout", "--mask-offpolicy-in-partial-rollout"] if partial else common
        args = make_args(rows, *words)
        is_slow = slow_prompt(args, "1+1=")
        fake.length = lambda r: 40 if is_slow(r) else 10  # noqa: B023
        source = RolloutDataSourceWithBuffer(args)
        assert groups_of(rollout(args, source)) == [0]
        [interrupted] = source.buffer[0]
        assert interrupted.status is (SampleStatus.ABORTED if partial else SampleStatus.PENDING)
        assert (interrupted.response_length > 0) == partial
        written = interrupted.response_length
        fake.version = 2
        is_slow = slow_prompt(args, "2+1=")
        output = rollout(args, source, 1)
        [[sample]] = output.samples
        assert sample.group_index == 1
        if partial:
            assert sample.version_spans == [(1, 0, written), (2, written, sample.response_length)]
            assert sample.mask == [0] * written + [1] * (sample.response_length - written)
            assert sample.metadata["start_rollout_id"] == 0
        else:
            assert sample.versions == {2}


def test_requests_of_other_clients_are_not_aborted(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    args = make_args(rows, "--rollout-batch-size", "1", "--over-sampling-batch-size", "3")
    is_slow = slow_prompt(args, "0+1=")
    fake.seconds_per_token = 0.01
    fake.length = lambda r: 2 if is_slow(r) else 8
    rollout(args, RolloutDataSourceWithBuffer(args))
    asked = {request["rid"] for request in fake.requests}
    assert fake.aborted and fake.aborted < asked


# Filters


def only_even(args: Arguments, samples: list[Sample], **kwargs: object) -> DynamicFilterOutput:
    group = samples[0].group_index
    assert isinstance(group, int)
    return DynamicFilterOutput(keep=group % 2 == 0, reason="odd", keep_when_insufficient=group > 3)


def nothing(args: Arguments, samples: list[Sample]) -> bool:
    return False


def test_dropped_groups_are_replaced_and_counted_by_reason(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    args = make_args(rows, "--dynamic-sampling-filter-path", f"{HERE}:only_even", "--rollout-batch-size", "3")
    output = rollout(args, RolloutDataSourceWithBuffer(args))
    assert groups_of(output) == [0, 2, 4]
    assert output.metrics is not None
    assert output.metrics["rollout/dynamic_filter/drop_odd"] == output.metrics["rollout/dropped_groups"] >= 2


def test_a_filter_that_drops_all_groups_ends_the_rollout_with_the_reason(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    words = ["--dynamic-sampling-filter-path", f"{HERE}:nothing", "--rollout-drop-limit", "12"]
    args = make_args(rows, *words)
    with pytest.raises(DataError, match=r"1\d consecutive groups were dropped \(dynamic_filter"):
        rollout(args, RolloutDataSourceWithBuffer(args))


def test_groups_with_equal_rewards_fill_a_batch_only_as_a_last_resort(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    reward = [
        "--custom-rm-path",
        f"{HERE}:always_one",
        "--n-samples-per-prompt",
        "2",
        "--rollout-drop-limit",
        "8",
    ]
    for name, fills in (("check", False), ("prefer", True)):
        path = f"slime.rollout.filters.{name}_reward_nonzero_std"
        args = make_args(rows, "--dynamic-sampling-filter-path", path, *reward, rm=None)
        source = RolloutDataSourceWithBuffer(args)
        if fills:
            output = rollout(args, source)
            assert len(output.samples) == 4
            assert (
                output.metrics is not None and output.metrics["rollout/dynamic_filter/drop_zero_std_1.0"] >= 8
            )
        else:
            with pytest.raises(DataError, match=r"zero_std_1\.0"):
                rollout(args, source)


async def always_one(args: Arguments, sample: Sample, **kwargs: object) -> float:
    return 1.0


def remove_first(args: Arguments, groups: list[list[Sample]]) -> None:
    groups[0][0].remove_sample = True


SEEN: list[Any] = []


def keep_all(args: Arguments, all_groups: list[Any], get_samples: Any) -> None:
    SEEN[:] = [all_groups, get_samples(1)]


def test_the_final_hooks_get_the_batch_and_every_finished_group(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    words = ["--rollout-sample-filter-path", f"{HERE}:remove_first", "--rollout-batch-size", "3"]
    words += ["--rollout-all-samples-process-path", f"{HERE}:keep_all"]
    args = make_args(rows, *words, "--dynamic-sampling-filter-path", f"{HERE}:only_even")
    output = rollout(args, RolloutDataSourceWithBuffer(args))
    assert [sample.remove_sample for sample in flatten(output.samples)] == [True, False, False]
    finished, more = hook_state("keep_all")
    assert len(finished) >= 5 and len(more) == 1


def hook_state(name: str) -> Any:
    """Returns the module of a hook given by file path."""
    from slime.plugins import load_attr

    return load_attr(f"{HERE}:{name}").__globals__["SEEN"]


# Custom functions


async def two_turns(args: Arguments, sample: Sample, sampling_params: dict[str, Any]) -> list[Sample]:
    """One execution with two samples."""
    from slime.rollout.generate import generate

    second = Sample.from_dict(sample.to_dict())
    return [await generate(args, sample, sampling_params), await generate(args, second, sampling_params)]


async def breaks(args: Arguments, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    raise ZeroDivisionError("my bug")


async def hangs(args: Arguments, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    await asyncio.sleep(60)
    return sample


async def forgets(args: Arguments, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    return sample


def test_a_generate_function_may_return_several_samples(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    words = ["--custom-generate-function-path", f"{HERE}:two_turns", "--n-samples-per-prompt", "2"]
    args = make_args(rows, *words, "--rollout-batch-size", "2")
    output = rollout(args, RolloutDataSourceWithBuffer(args))
    assert [[len(entry) for entry in group] for group in output.samples] == [[2, 2], [2, 2]]  # type: ignore[arg-type]
    samples = list(flatten(output.samples))
    assert [s.index for s in samples] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert all(s.reward is not None for s in samples)


@pytest.mark.parametrize(
    ("function", "reason", "message"),
    [
        ("breaks", "ZeroDivisionError", "my bug"),
        ("hangs", "timeout", "TimeoutError"),
        ("forgets", "DataError", "left a sample with status PENDING"),
    ],
)
def test_a_generate_function_that_is_broken_ends_the_rollout_with_its_error(
    function: str, reason: str, message: str, make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    words = ["--custom-generate-function-path", f"{HERE}:{function}", "--rollout-drop-limit", "4"]
    args = make_args(rows, *words, "--rollout-sample-timeout", "0.2")
    with pytest.raises(DataError, match=f"{reason}: [4-9].*{message}"):
        rollout(args, RolloutDataSourceWithBuffer(args))


def test_a_sample_may_have_its_own_generate_function(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    args = make_args(rows, "--rollout-batch-size", "2")
    source = RolloutDataSourceWithBuffer(args)
    [[first], [second]] = source.get_samples(2)
    first.generate_function_path = f"{HERE}:two_turns"
    source.add_samples([[first], [second]])
    assert [len(list(flatten(group))) for group in rollout(args, source).samples] == [2, 1]


def note(args: Arguments, sample: Sample, *, rollout_id: int | None = None, evaluation: bool = False) -> None:
    sample.metadata["noted"] = (rollout_id, evaluation, sample.reward)


async def length_of_group(args: Arguments, samples: list[Sample], **kwargs: object) -> list[float]:
    return [float(len(samples))] * len(samples)


def test_sample_hooks_run_before_rewards_and_group_rewards_get_the_group(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    words = ["--group-rm", "--custom-rm-path", f"{HERE}:length_of_group", "--n-samples-per-prompt", "3"]
    args = make_args(rows, *words, "--rollout-sample-hook-path", f"{HERE}:note", rm=None)
    for sample in flatten(rollout(args, RolloutDataSourceWithBuffer(args), 5).samples):
        assert sample.reward == 3.0
        assert sample.metadata["noted"] == (5, False, None)


# Failures


def test_an_intermittently_failing_request_is_retried(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    codes = iter([503, 500, 429] + [None] * 100)
    fake.failure = lambda request: next(codes)
    args = make_args(rows)
    output = rollout(args, RolloutDataSourceWithBuffer(args))
    assert groups_of(output) == [0, 1, 2, 3]
    assert output.metrics is not None and output.metrics["rollout/request_retries"] == 3
    rids = [request["rid"] for request in fake.requests]
    assert len(set(rids)) == len(rids) == 7


def test_a_prompt_rejected_by_the_engine_is_dropped_at_once(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    args = make_args(rows)
    is_bad = slow_prompt(args, "1+1=")
    fake.failure = lambda request: 400 if is_bad(request) else None
    output = rollout(args, RolloutDataSourceWithBuffer(args))
    assert 1 not in groups_of(output)
    assert output.metrics is not None and output.metrics["rollout/drop/refused"] == 1
    assert sum(map(is_bad, fake.requests)) == 1


BAD: Counter[Any] = Counter()


async def bad_rewards(args: Arguments, sample: Sample, **kwargs: object) -> float:
    """NaN for group 0 always; an error for group 1 the first time."""
    BAD[sample.group_index] += 1
    if sample.group_index == 0:
        return float("nan")
    if sample.group_index == 1 and BAD[1] == 1:
        raise OSError("the reward server is away")
    return 1.0


def test_an_invalid_reward_drops_its_group_and_not_the_batch(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    args = make_args(rows, "--custom-rm-path", f"{HERE}:bad_rewards", rm=None)
    output = rollout(args, RolloutDataSourceWithBuffer(args))
    assert groups_of(output) == [1, 2, 3, 4]
    assert output.metrics is not None
    assert output.metrics["rollout/drop/reward"] == 1, "NaN, three times"
    assert output.metrics["rollout/error_cat/reward"] == 4
    assert output.metrics["rollout/retry/reward"] == 3


def test_an_unreachable_engine_is_reported(
    make_args: ParseArgs, rows: Rows, tmp_path: Path, add_engine: AddEngine
) -> None:
    add_engine(tmp_path / "run", "http://127.0.0.1:9")
    args = make_args(rows, "--rollout-sample-timeout", "0.3", "--rollout-drop-limit", "2")
    with pytest.raises(DataError, match=r"engine: \d.*127.0.0.1:9"):
        rollout(args, RolloutDataSourceWithBuffer(args))


def test_a_stalled_rollout_reports_what_it_waits_for(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine
) -> None:
    fake.seconds_per_token = 5.0
    args = make_args(rows, "--rollout-stall-timeout", "0.3")
    began = time.monotonic()
    with pytest.raises(
        EngineError, match=r"no group was finished for 0.3 s .* 0 of 4 are finished and 4 running"
    ):
        rollout(args, RolloutDataSourceWithBuffer(args))
    assert time.monotonic() - began < 3


def test_messages_without_a_template_are_refused_at_once(make_args: ParseArgs, fake: FakeEngine) -> None:
    args = make_args([{"input": [{"role": "user", "content": "hi"}]}])
    with pytest.raises(ConfigError, match="--apply-chat-template"):
        rollout(args, RolloutDataSourceWithBuffer(args))


def test_requests_are_limited_and_spread_over_engines(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine, another_fake: FakeEngine, tmp_path: Path
) -> None:
    for engine in (fake, another_fake):
        engine.seconds_per_token = 0.02
    words = ["--rollout-num-engines", "2", "--sglang-server-concurrency", "3", "--rollout-batch-size", "18"]
    args = make_args(rows, *words)
    rollout(args, RolloutDataSourceWithBuffer(args))
    assert (fake.most_running, another_fake.most_running) == (3, 3)
    assert len(fake.requests) == len(another_fake.requests) == 9


def test_requests_of_a_dead_engine_go_to_another(
    make_args: ParseArgs, rows: Rows, another_fake: FakeEngine, tmp_path: Path, add_engine: AddEngine
) -> None:
    add_engine(tmp_path / "run", "http://127.0.0.1:9")
    args = make_args(rows, "--rollout-num-engines", "2")
    assert len(rollout(args, RolloutDataSourceWithBuffer(args)).samples) == 4
    assert len(another_fake.requests) == 4
