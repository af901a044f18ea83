"""Tests evaluation: data sets with their own settings, metrics, pass@k."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime import replay
from slime.errors import ConfigError, EngineError
from slime.rollout.evaluation import evaluate
from slime.rollout.metrics import pass_at_k, pass_rates
from slime.rollout.service import RolloutService
from slime.types import Sample
from tests.fakes.fixtures import ParseArgs, Rows
from tests.fakes.rollout_engine import FakeEngine

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

    from slime.arguments import Arguments


@given(n=st.integers(1, 8), data=st.data())
def test_pass_at_k_is_the_share_of_k_subsets_with_a_solution(n: int, data: DataObject) -> None:
    solved, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    answers = [True] * solved + [False] * (n - solved)
    choices = [any(choice) for choice in itertools.combinations(answers, k)]
    assert pass_at_k(n, solved, k) == pytest.approx(sum(choices) / len(choices), abs=1e-12)


def test_pass_rates_are_means_over_groups_at_powers_of_two_and_the_size() -> None:
    scores = [1.0, 0, 0, 0, 0, 0] + [0.0] * 6
    assert pass_rates(scores, 6) == {
        1: pytest.approx(1 / 12),
        2: pytest.approx(1 / 6),
        4: pytest.approx(1 / 3),
        6: 0.5,
    }


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


async def first_token_is_even(args: Arguments, sample: Sample, **kwargs: object) -> dict[str, float]:
    even = sample.tokens[sample.prompt_length] % 2 == 0
    return {"score": float(even), "other": 5.0}


CUSTOM = ["--custom-rm-path", f"{__file__}:first_token_is_even", "--reward-key", "score"]


def test_every_data_set_has_its_scores_lengths_and_pass_rates(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine, tmp_path: Path
) -> None:
    a, b = write(tmp_path / "a.jsonl", rows[:3]), write(tmp_path / "b.jsonl", rows)
    words = ["--eval-prompt-data", "small", a, "tail", f"{b}@[-2:]", "--n-samples-per-eval-prompt", "4"]
    words += ["--eval-temperature", "0", "--eval-max-response-len", "3", "--eval-interval", "1"]
    args = make_args(rows, *words, *CUSTOM, rm=None)
    output = evaluate(args, 3)
    assert {name: len(result["samples"]) for name, result in output.data.items()} == {"small": 12, "tail": 8}
    small, metrics = output.data["small"], output.metrics
    assert metrics is not None
    assert set(small["rewards"]) == {0.0, 1.0}
    assert metrics["eval/small"] == pytest.approx(sum(small["rewards"]) / 12) == metrics["eval/small/pass@1"]
    assert metrics["eval/small/pass@4"] >= metrics["eval/small/pass@2"] >= metrics["eval/small/pass@1"]
    assert metrics["eval/small/truncated_ratio"] == 1.0
    assert metrics["eval/small/response_len/max"] == 3
    params = fake.requests[0]["sampling_params"]
    assert (params["temperature"], params["max_new_tokens"]) == (0, 3)
    again = evaluate(args, 4)
    assert again.data["small"]["rewards"] == small["rewards"], "the same seeds at every evaluation"


def test_a_configuration_file_has_settings_for_each_data_set(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", [{"question": "what", "label": "x"}])
    config = tmp_path / "eval.yaml"
    config.write_text(
        f"""
eval:
  defaults: {{max_response_len: 5, input_key: question}}
  datasets:
    - {{name: one, path: {path}, temperature: 0.5, metadata_overrides: {{level: 2}}}}
    - {{name: two, path: {path}, max_response_len: 2, n_samples_per_eval_prompt: 3}}
"""
    )
    args = make_args(rows, "--eval-config", str(config), *CUSTOM, rm=None)
    output = evaluate(args, 0)
    assert [len(output.data[name]["samples"]) for name in ("one", "two")] == [1, 3]
    assert output.data["one"]["samples"][0].metadata["level"] == 2
    asked = {
        (r["sampling_params"]["temperature"], r["sampling_params"]["max_new_tokens"]) for r in fake.requests
    }
    assert asked == {(0.5, 5), (1.0, 2)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("eval: {}", "must contain a list eval.datasets"),
        ("eval: {datasets: [{name: a}]}", "name and path are needed"),
        ("eval: {datasets: [{name: a, path: p, temprature: 1}]}", "unknown settings temprature"),
        ("eval: [", "must contain a list eval.datasets"),
    ],
)
def test_a_wrong_configuration_file_is_refused(
    text: str, complaint: str, make_args: ParseArgs, rows: Rows, tmp_path: Path
) -> None:
    (tmp_path / "eval.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        make_args(rows, "--eval-config", str(tmp_path / "eval.yaml"))


def test_two_data_sets_with_one_name_are_rejected(make_args: ParseArgs, rows: Rows, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(ConfigError, match="duplicate names of evaluation data sets: a, a"):
        make_args(rows, "--eval-prompt-data", "a", path, "a", path)


def test_a_failing_sample_is_retried_and_then_counts_as_wrong(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine, tmp_path: Path
) -> None:
    codes = iter([None, 400, 400, 400, 400, 400])
    fake.failure = lambda request: next(codes)
    path = write(tmp_path / "a.jsonl", rows[:2])
    args = make_args(rows, "--eval-prompt-data", "a", path, *CUSTOM, rm=None)
    output = evaluate(args, 0)
    assert output.metrics is not None
    assert len(output.data["a"]["rewards"]) == 2 and 0.0 in output.data["a"]["rewards"]
    assert output.metrics["eval/a/error_cat/refused"] == 1


def test_an_evaluation_without_results_is_an_error(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine, tmp_path: Path
) -> None:
    fake.failure = lambda request: 400
    args = make_args(rows, "--eval-prompt-data", "a", write(tmp_path / "a.jsonl", rows[:2]))
    with pytest.raises(EngineError, match="all 2 samples failed; first error: EngineRefused"):
        evaluate(args, 0)


def my_log(rollout_id: int, args: Arguments, data: dict[str, Any], extra_metrics: dict[str, float]) -> bool:
    return True


def test_an_evaluation_during_a_rollout_does_not_consume_its_prompts(
    make_args: ParseArgs, rows: Rows, fake: FakeEngine, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", rows[:2])
    service = RolloutService(make_args(rows, "--eval-prompt-data", "a", path, *CUSTOM, rm=None))
    assert 0 <= service.evaluate(0)["eval/a"] <= 1
    samples, _ = service.generate(0)
    assert [sample.group_index for sample in samples] == [0, 1, 2, 3]
    pattern = str(tmp_path / "kept_{rollout_id}.json")
    words = ["--eval-prompt-data", "a", path, "--custom-eval-rollout-log-function-path", f"{__file__}:my_log"]
    words += ["--save-debug-rollout-data", pattern]
    assert RolloutService(make_args(rows, *words)).evaluate(7) == {}
    assert [sample.index for sample in replay.load(pattern, "eval_7")] == ["a/0/0", "a/1/0"]
