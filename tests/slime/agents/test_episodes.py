"""Tests episodes with a scripted engine: the handling of all tokens and of all failures."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slime.agents import Action, EpisodeLimits, Observation, Outcome, Start, Task, Tool, agent
from slime.agents.conversation import continuation
from slime.agents.tool_calls import CallError, calls_in
from slime.errors import ConfigError, EnvironmentAway
from slime.losses.corrections import PolicyTerms, tis
from slime.plugins import load_attr
from slime.rollout.event_loop import run
from slime.rollout.group_filter import GroupFilter, Verdict
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.state import sampling_params
from slime.types import Sample, SampleStatus, by_trajectory
from tests import ROOT
from tests.fakes.fixtures import ParseArgs
from tests.slime.agents.scripted import END, TOKENIZER, ScriptedEngine
from tests.slime.rollout.conftest import make_args, model, record_engine  # noqa: F401

EXAMPLE = f"{ROOT}/slime/examples/my_agent/guess.py:generate"
GuessNumber: Any = load_attr(f"{ROOT}/slime/examples/my_agent/guess.py:GuessNumber")


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>{END}"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[ScriptedEngine]:
    with ScriptedEngine() as found:
        record_engine(tmp_path / "run", found.url)
        yield found


Play = Callable[..., Sample]


@pytest.fixture
def play(engine: ScriptedEngine, make_args: ParseArgs) -> Play:  # noqa: F811
    """f(script, generate or its path, words): one sample for "Find my number", whose label is 4."""

    def play(script: list[str], path: str = EXAMPLE, *words: str) -> Sample:
        engine.script = list(script)
        flags = [
            "--reward-key",
            "score",
            "--rollout-max-context-len",
            "700",
            "--rollout-max-response-len",
            "200",
        ]
        args = make_args([{"input": "x", "label": "4"}], *flags, *words)
        runner = SampleRunner(args, 0, sampling_params(args), generate_path=path)
        sample = Sample(group_index=0, index=0, prompt="Find my number from 1 to 9.", label="4")
        found: Sample = run(runner.run_sample(sample))
        return found

    return play


def generating(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]) -> str:
    monkeypatch.setattr(sys.modules[__name__], "current", function, raising=False)
    return f"{__name__}.current"


def test_a_trajectory_has_the_sampled_ids_and_masks_observations(play: Play) -> None:
    script = [call("guess", number=7), f"hmm{call('guess', number=4)}"]
    sample = play(script)
    assert sample.reward == {"score": pytest.approx(0.8), "acc": 1.0}
    assert sample.status is SampleStatus.COMPLETED
    sampled = [TOKENIZER.encode(text) for text in script]
    shown = TOKENIZER.encode(
        "\n<|im_start|>user\n<tool_response>\ntoo large\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    response = sample.tokens[sample.prompt_length :]
    assert response == sampled[0] + shown + sampled[1]
    assert sample.loss_mask == [1] * len(sampled[0]) + [0] * len(shown) + [1] * len(sampled[1])
    assert sample.rollout_log_probs == [
        -token / 1000 if kept else 0.0 for token, kept in zip(response, sample.loss_mask, strict=True)
    ]
    first, second = [0, len(sampled[0])], [len(sampled[0] + shown), len(response)]
    assert sample.version_spans == [(1, *first), (2, *second)]
    about = sample.metadata["episode"]
    assert about == {
        "guesses": 2,
        "turns": 2,
        "tool_calls": 2,
        "parse_errors": 0,
        "ended_by": "environment",
        "spans": [first, second],
    }


def test_the_next_request_starts_with_all_previous_ids(play: Play, engine: ScriptedEngine) -> None:
    sample = play([call("guess", number=1), call("guess", number=4)])
    first, second = (request["input_ids"] for request in engine.requests)
    assert second[: len(first)] == first and sample.tokens[: len(second)] == second
    text = TOKENIZER.decode(first)
    assert '"name": "guess"' in text and "Find my number" in text


def test_an_answer_is_continued_with_its_sampled_ids_even_if_its_text_encodes_differently() -> None:
    shown = continuation(TOKENIZER, [{"role": "tool", "content": "4"}])
    text = TOKENIZER.decode(shown)
    assert text.startswith("\n") and "4" in text and text.endswith("<|im_start|>assistant\n")


def test_an_invalid_call_gets_an_error_is_counted_and_stays_trained(play: Play) -> None:
    sample = play([call("ask", number=1), call("guess", number="1"), call("guess", number=4)])
    text = TOKENIZER.decode(sample.tokens)
    assert "Error: there is no tool 'ask'; tools: guess" in text
    assert "Error: guess: the argument number must be of type integer" in text
    assert sample.metadata["episode"]["parse_errors"] == 2 and sample.reward["acc"] == 1.0  # type: ignore[index]
    begin, end = sample.metadata["episode"]["spans"][0]
    assert sample.loss_mask is not None and all(sample.loss_mask[begin:end])


def test_three_invalid_calls_in_a_row_end_the_episode_which_is_evaluated(play: Play) -> None:
    sample = play([call("ask")] * 9)
    assert sample.status is SampleStatus.TRUNCATED and sample.metadata["episode"]["turns"] == 3
    assert sample.metadata["episode"]["ended_by"] == "parse_errors"
    assert sample.reward == {"score": -1.0, "acc": 0.0}


def test_an_episode_ends_with_its_last_turn_without_a_final_observation(play: Play) -> None:
    sample = play([call("guess", number=1)] * 9)
    assert sample.status is SampleStatus.TRUNCATED and sample.metadata["episode"]["turns"] == 6
    assert sample.metadata["episode"]["ended_by"] == "turns"
    assert sample.loss_mask is not None and sample.loss_mask[-1] == 1


def test_an_observation_beyond_the_context_ends_the_episode_which_is_evaluated(play: Play) -> None:
    whole = play([call("guess", number=1), call("guess", number=4)])
    room = whole.prompt_length + whole.metadata["episode"]["spans"][0][1] + 10
    sample = play([call("guess", number=1)], EXAMPLE, "--rollout-max-context-len", str(room))
    assert sample.status is SampleStatus.TRUNCATED and sample.tokens == whole.tokens[: room - 10]
    assert sample.metadata["episode"]["ended_by"] == "context"
    assert sample.reward == {"score": -1.0, "acc": 0.0}


def test_a_task_that_fills_the_context_is_rejected_without_retries(
    play: Play,
    make_args: ParseArgs,  # noqa: F811
) -> None:
    sample = play([], EXAMPLE, "--rollout-max-context-len", "20")
    assert sample.metadata["failure"]["reason"] == "refused"
    assert GroupFilter(make_args([{"input": "x", "label": "4"}])).judge([sample]) is Verdict.DROP


class Fragile:
    """An environment whose first instances fail at given places."""

    breaks: list[str]
    closed: int

    def _may_break(self, at: str) -> None:
        if self.breaks and self.breaks[0] == at:
            self.breaks.pop(0)
            raise EnvironmentAway(f"gone at {at}")

    async def reset(self, task: Task) -> Start:
        self._may_break("reset")
        return Start([{"role": "user", "content": str(task.prompt)}])

    async def step(self, action: Action) -> Observation:
        self._may_break("step")
        return Observation(done=True, step_score=0.5)

    async def evaluate(self) -> Outcome:
        self._may_break("evaluate")
        return Outcome(1.0, True)

    async def close(self) -> None:
        type(self).closed += 1


def fragile(*breaks: str) -> type[Fragile]:
    return type("FragileNow", (Fragile,), {"breaks": list(breaks), "closed": 0})


def test_a_failing_environment_is_replaced_without_penalty(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = fragile("step", "evaluate")
    sample = play([f"a{END}", f"b{END}", f"c{END}"], generating(monkeypatch, agent(kind)))
    assert sample.reward == {"score": 1.5, "acc": 1.0} and TOKENIZER.decode(sample.tokens).endswith(f"c{END}")
    assert sample.metadata["environments_away"] == 2 and kind.closed == 3


def test_without_a_working_environment_the_group_is_retried_without_a_reward(
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    make_args: ParseArgs,  # noqa: F811
) -> None:
    kind = fragile("reset", "reset", "reset")
    sample = play([], generating(monkeypatch, agent(kind)))
    assert (sample.status, sample.reward, kind.closed) == (SampleStatus.FAILED, None, 3)
    assert sample.metadata["failure"]["reason"] == "environment"
    judge = GroupFilter(make_args([{"input": "x", "label": "4"}], "--rollout-max-attempts", "2"))
    assert judge.judge([sample]) is Verdict.RETRY and judge.failures == {"environment": 1}


def test_step_scores_come_with_their_spans_and_the_same_coefficient_as_the_scalar_reward(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = agent(fragile(), EpisodeLimits(step_coef=2.0))
    sample = play([f"a{END}"], generating(monkeypatch, generate))
    assert sample.reward == {"score": 2.0, "acc": 1.0}
    assert sample.metadata["step_wise"] == {
        "step_scores": [0.5],
        "step_scores_with_outcome": [2.0],
        "step_token_spans": [[0, sample.response_length]],
    }


def test_one_sample_per_turn_has_the_same_tokens_and_log_probs(
    play: Play, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [call("guess", number=7), call("ask"), f"hmm{call('guess', number=4)}"]
    whole = play(script)
    engine.version = 0
    turns: Any = play(
        script, generating(monkeypatch, agent(GuessNumber, EpisodeLimits(turns=6), per_turn=True))
    )
    spans = whole.metadata["episode"]["spans"]
    assert len(turns) == 3 and by_trajectory(turns) == [turns]
    for turn, (begin, end) in zip(turns, spans, strict=True):
        assert turn.tokens == whole.tokens[: whole.prompt_length + end]
        assert turn.prompt_length == whole.prompt_length + begin
        assert turn.rollout_log_probs == whole.rollout_log_probs[begin:end]  # type: ignore[index]
        assert turn.loss_mask == [1] * turn.response_length
        assert turn.reward == whole.reward and turn.metadata["episode"]["parse_errors"] == 1
    assert [turn.version_spans[0][0] for turn in turns] == [version for version, *_ in whole.version_spans]


def test_old_observations_are_shortened_as_a_whole_but_answers_never(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Talker(Fragile):
        breaks, closed = [], 0  # type: ignore[var-annotated]

        async def step(self, action: Action) -> Observation:
            return Observation([{"role": "tool", "content": "word " * 60}], done="stop" in action.text)

    script = [f"one{END}", f"two{END}", f"three{END}", f"stop{END}"]
    limits = EpisodeLimits(context="fold")
    words = ["--rollout-max-context-len", "300", "--rollout-max-response-len", "20"]
    turns: Any = play(script, generating(monkeypatch, agent(Talker, limits, per_turn=True)), *words)
    texts = [TOKENIZER.decode(turn.tokens) for turn in turns]
    assert [text.count("[300 characters left out]") for text in texts] == [0, 0, 1, 2]
    assert all(len(turn.tokens) <= 300 for turn in turns) and turns[-1].status is SampleStatus.COMPLETED
    assert texts[-1].count("word word") == 30 and all(word in texts[-1] for word in ("one", "two", "three"))
    assert texts[-1].count("<tool_response>") == texts[-1].count("</tool_response>") == 3
    for text, answer in zip(texts, script, strict=True):
        assert text.endswith(answer)


@pytest.mark.parametrize("limits", [EpisodeLimits(context="fold"), EpisodeLimits(pictures=3)])
def test_changing_earlier_prompts_needs_one_sample_a_turn(limits: EpisodeLimits) -> None:
    with pytest.raises(ConfigError, match="per_turn=True"):
        agent(GuessNumber, limits)


def test_groups_of_trajectories_pass_a_filter_by_their_rewards(
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    make_args: ParseArgs,  # noqa: F811
) -> None:
    path = generating(monkeypatch, agent(GuessNumber, EpisodeLimits(turns=6), per_turn=True))
    right = play([call("guess", number=1), call("guess", number=4)], path)
    wrong = play([call("guess", number=1)] * 6, path)
    words = [
        "--dynamic-sampling-filter-path",
        "slime.rollout.filters.check_reward_nonzero_std",
        "--reward-key",
        "score",
    ]
    judge = GroupFilter(make_args([{"input": "x", "label": "4"}], *words))
    assert judge.judge([right, wrong]) is Verdict.ACCEPT
    assert judge.judge([wrong, wrong]) is Verdict.DROP and judge.filtered == {"zero_std_-1.0": 1}


def test_truncated_importance_sampling_uses_the_log_probs_of_an_episode(play: Play) -> None:
    """Trained tokens are weighted by exp(old - engine); observations are not trained."""
    sample = play([call("guess", number=7), call("guess", number=4)])
    engine = torch.tensor(sample.rollout_log_probs)
    mask = torch.tensor(sample.mask, dtype=torch.bool)
    old = engine + torch.where(mask, 0.5, 0.0)
    terms = PolicyTerms(old - old, old, torch.ones_like(old), engine, None)
    weighed, metrics = tis(0.0, 2.0)(torch.ones_like(old), terms)
    assert weighed[mask].tolist() == pytest.approx([math.exp(0.5)] * int(mask.sum()), abs=1e-5)
    assert metrics["tis"][~mask].tolist() == [1.0] * int((~mask).sum())


NONSENSE: list[tuple[str, object]] = [
    ("reset", None),
    ("reset", Start([])),
    ("reset", Start("hello")),  # type: ignore[arg-type]
    ("reset", Start([{"role": "user", "content": "x"}], ("a tool",))),  # type: ignore[arg-type]
    ("step", None),
    ("step", Observation(["text"])),  # type: ignore[list-item]
    ("step", Observation(done=True, step_score=math.nan)),
    ("evaluate", None),
    ("evaluate", Outcome(math.inf, True)),
    ("evaluate", Outcome("1", True)),  # type: ignore[arg-type]
    ("evaluate", Outcome(1.0, "yes")),  # type: ignore[arg-type]
    ("evaluate", Outcome(1.0, True, ["details"])),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("method", "answer"), NONSENSE)
def test_an_environment_with_invalid_answers_counts_as_unavailable_without_a_reward(
    method: str, answer: object, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nonsense(*_: object) -> object:
        return answer

    broken = type("Broken", (fragile(),), {method: nonsense})
    sample = play([f"a{END}"] * 3, generating(monkeypatch, agent(broken)))
    assert (sample.status, sample.reward) == (SampleStatus.FAILED, None)
    assert sample.metadata["failure"]["reason"] == "environment" and broken.closed == 3


def test_an_environment_that_fails_to_close_loses_no_episode(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def close(_: object) -> None:
        raise RuntimeError("its container is gone")

    kind = type("Stuck", (fragile("step"),), {"close": close})
    sample = play([f"a{END}"] * 2, generating(monkeypatch, agent(kind)))
    assert sample.reward == {"score": 1.5, "acc": 1.0} and "its container is gone" in caplog.text


TOOL = Tool(
    "run", "", {"properties": {"code": {"type": "string"}, "n": {"type": "number"}}, "required": ["code"]}
)


def test_calls_are_parsed_in_the_formats_of_models() -> None:
    pretty = (
        '<tool_call>\n{\n  "name": "run",\n  "arguments": {\n    "code": "a\nb", "n": 1\n  }\n}\n</tool_call>'
    )
    [found] = calls_in(f"text {pretty} more", [TOOL])
    assert (found.name, found.arguments) == ("run", {"code": "a\nb", "n": 1})
    assert calls_in("Answer: \\boxed{4}", [TOOL]) == ()
    assert len(calls_in(pretty * 2 + " Answer: 4", [TOOL])) == 2


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('<tool_call>{"name": "run"', "does not end"),
        ("<tool_call>run</tool_call>", "not JSON"),
        ('<tool_call>["run"]</tool_call>', "arguments"),
        ('<tool_call>{"name": "run", "arguments": "x"}</tool_call>', "arguments"),
        ('<tool_call>{"name": "go", "arguments": {}}</tool_call>', "no tool 'go'"),
        ('<tool_call>{"name": "run", "arguments": {}}</tool_call>', "code is missing"),
        ('<tool_call>{"name": "run", "arguments": {"code": 1}}</tool_call>', "type string"),
        ('<tool_call>{"name": "run", "arguments": {"code": "", "n": true}}</tool_call>', "type number"),
        ('<tool_call>{"name": "run", "arguments": {"code": "", "m": 1}}</tool_call>', "no argument m"),
        ('<tool_call>{"name": "run", "arguments": {"code": "", "n": NaN}}</tool_call>', "not JSON"),
        ('<tool_call>{"name": "run", "arguments": {"code": "\\ud800"}}</tool_call>', "half of a character"),
        (f"<tool_call>{'[' * 200_000}</tool_call>", "too deep"),
    ],
)
def test_a_bad_call_gets_an_error_message(text: str, complaint: str) -> None:
    with pytest.raises(CallError, match=complaint):
        calls_in(text, [TOOL])
