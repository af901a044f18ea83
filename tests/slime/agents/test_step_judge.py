"""Tests judging of steps by votes, and the reward computed from them, with a scripted judge."""

from __future__ import annotations

import asyncio
import json
import statistics
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime.agents import EpisodeLimits, Observation, Outcome, Start, Step, Task, ToolCall, agent
from slime.agents.episode import compose
from slime.agents.protocol import Action
from slime.agents.step_judge import ChatJudge, EngineJudge, StepJudge
from slime.agents.step_prompt import read_vote, step_prompt
from slime.errors import ConfigError, EngineError, RewardError
from slime.losses.step_wise import spans_of
from slime.rollout.event_loop import run
from slime.rollout.metrics import episode_metrics
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.state import sampling_params
from slime.types import Sample
from tests.fakes.fixtures import ParseArgs
from tests.fakes.rollout_engine import FakeEngine
from tests.slime.agents.scripted import END, TOKENIZER, ScriptedEngine
from tests.slime.rollout.conftest import make_args, model, record_engine  # noqa: F401

if TYPE_CHECKING:
    from slime.arguments import Arguments


WalkSteps = Callable[..., tuple[Any, int]]

JUDGED = ["--prm-enable", "--custom-generate-function-path", f"{__name__}.unused"]
SCORES = st.lists(st.one_of(st.none(), st.floats(-1, 1)), min_size=1, max_size=8)


async def unused(args: Arguments, sample: Sample, sampling_params: dict[str, Any]) -> Sample:
    return sample


@given(outcome=st.floats(-1, 1), scores=SCORES, coef=st.floats(0, 2))
def test_the_scalar_reward_is_the_mean_of_the_step_wise_one(
    outcome: float, scores: list[float | None], coef: float
) -> None:
    found = compose(outcome, scores, coef)
    assert statistics.fmean(found.steps) == pytest.approx(found.total, abs=1e-9)
    known = [score for score in scores if score is not None]
    mean = statistics.fmean(known) if known else 0.0
    assert found.total == pytest.approx(outcome + coef * mean, abs=1e-9)


def test_a_step_without_a_score_is_neither_good_nor_bad() -> None:
    found = compose(1.0, [0.5, None, -1.0], 2.0)
    assert found.steps == [2.0, 0.5, -1.0] and found.total == 0.5
    assert compose(1.0, [None, None], 2.0).steps == [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "vote"),
    [
        ("It helps. \\boxed{1}", 1),
        ("\\boxed{-1}", -1),
        ("either \\boxed{1} or \\boxed{-1}: \\boxed{+1}", 1),
        ("$\\boxed{-1.0}$", -1),
        ("\\boxed{0}", None),
        ("\\boxed{good}", None),
        ("1", None),
        ("\\boxed{1", None),
    ],
)
def test_a_vote_is_the_last_boxed_value(text: str, vote: int | None) -> None:
    assert read_vote(text) == vote


def test_the_judge_reads_task_step_result_and_parts_of_the_history() -> None:
    steps = [Step(f"thought {number}", shown=({"role": "tool", "content": "seen"},)) for number in range(7)]
    last = Step(
        "x" * 5000 + "end", (ToolCall("run", {"code": "1/0"}),), ({"role": "tool", "content": "error"},)
    )
    messages = step_prompt(Task("Solve it."), [*steps, last])
    assert messages is not None
    text = messages[1]["content"]
    assert "Solve it." in text and 'run({"code": "1/0"})' in text and text.endswith("What came back:\nerror")
    assert [number for number in range(7) if f"thought {number}" in text] == [0, 1, 5, 6]
    assert "x" * 5000 not in text and "characters left out" in text and "end" in text
    failed = step_prompt(Task("Solve it."), [Step("?", error="there is no tool 'ask'")])
    assert failed is not None and "could not be made: there is no tool 'ask'" in failed[1]["content"]


class Script:
    """A judge model with an answer for each vote number; an exception is raised."""

    def __init__(self, *replies: str | Exception, seconds: float = 0.0) -> None:
        self.replies, self.seconds, self.seeds = list(replies), seconds, list[int]()
        self.running = self.most_running = 0

    async def reply(self, messages: list[dict[str, Any]], seed: int) -> str:
        self.seeds.append(seed)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self.seconds)
        self.running -= 1
        said = self.replies[seed % 1000 % len(self.replies)]
        if isinstance(said, Exception):
            raise said
        return said


def judge(make: ParseArgs, script: Script, *words: str) -> StepJudge:
    url = ["--prm-url", "http://127.0.0.1:9/v1", "--prm-model", "judge"]
    return StepJudge(make([{"input": "x"}], *JUDGED, *url, *words), script)


def test_a_steps_score_is_the_mean_of_its_valid_votes_with_different_seeds(make_args: ParseArgs) -> None:  # noqa: F811
    script = Script("\\boxed{1}", "\\boxed{-1}", "well", EngineError("away"), "\\boxed{1}")
    found = asyncio.run(judge(make_args, script, "--prm-m", "5", "--rollout-seed", "7").verdict(3, []))
    assert sorted(script.seeds) == [7000, 7001, 7002, 7003, 7004]
    votes = found.pop("votes")
    assert found == {
        "status": "ok",
        "step_index": 3,
        "scores": [1, -1, 0, None, 1],
        "valid_scores": [1, -1, 1],
        "valid_vote_count": 3,
        "mean_score": pytest.approx(1 / 3),
    }
    assert [vote["ok"] for vote in votes] == [True, True, True, False, True]
    assert votes[3]["raw_text"] == "EngineError: away" and votes[0]["latency_ms"] >= 0


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (Script("no idea"), "invalid_result"),
        (Script(EngineError("away")), "exception"),
        (Script("\\boxed{1}", seconds=60.0), "exception"),
    ],
)
def test_a_judge_that_fails_gives_no_score(make_args: ParseArgs, script: Script, status: str) -> None:  # noqa: F811
    found = asyncio.run(judge(make_args, script, "--prm-timeout", "0.05").verdict(0, []))
    assert (found["status"], found["mean_score"], found["valid_vote_count"]) == (status, None, 0)


def test_concurrent_votes_of_all_episodes_are_limited(make_args: ParseArgs) -> None:  # noqa: F811
    script = Script("\\boxed{1}", seconds=0.005)
    found = judge(make_args, script, "--prm-concurrency", "3")

    async def many() -> list[Any]:
        return await asyncio.gather(*(found.verdict(step, []) for step in range(5)))

    assert [verdict["mean_score"] for verdict in asyncio.run(many())] == [1.0] * 5
    assert script.most_running == 3 and len(script.seeds) == 20


class Walk:
    """An environment of three steps, then solved."""

    async def reset(self, task: Task) -> Start:
        self.left = 3
        return Start([{"role": "user", "content": str(task.prompt)}])

    async def step(self, action: Action) -> Observation:
        self.left -= 1
        return Observation([{"role": "user", "content": f"{self.left} left"}], done=self.left == 0)

    async def evaluate(self) -> Outcome:
        return Outcome(1.0, True)

    async def close(self) -> None:
        pass


class JudgingEngine(FakeEngine):
    """Answers 1 for a step that mentions "good", -1 for one that mentions "bad", nothing for others."""

    async def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = TOKENIZER.decode(body["input_ids"]).partition("The step to judge")[2]
        said = "\\boxed{1}" if "good" in asked else "\\boxed{-1}" if "bad" in asked else "hm"
        return {"text": said, "output_ids": [], "meta_info": {"finish_reason": {"type": "stop"}}}


@pytest.fixture
def walk(tmp_path: Path, make_args: ParseArgs) -> Iterator[WalkSteps]:  # noqa: F811
    """f(*words, per_turn, evaluation): the samples of an episode with the steps "good", "bad", "odd"."""
    with ScriptedEngine() as engine, JudgingEngine() as judging:
        record_engine(tmp_path / "run", engine.url)
        port = judging.url.rpartition(":")[2]

        def play(*words: str, per_turn: bool = False, evaluation: bool = False) -> Any:
            engine.script = [f"good{END}", f"bad{END}", f"odd{END}"]
            where = ["--prm-router-ip", "127.0.0.1", "--prm-router-port", port, "--prm-m", "2"]
            flags = ["--reward-key", "score", "--rollout-max-response-len", "200", *words]
            args = make_args([{"input": "x"}], *JUDGED, *where, *flags)
            generate = agent(Walk, EpisodeLimits(turns=4), per_turn=per_turn)
            runner = SampleRunner(args, 0, sampling_params(args), evaluation=evaluation)
            runner.generate_function = generate
            return run(runner.run_sample(Sample(group_index=0, index=0, prompt="Walk."))), len(
                judging.requests
            )

        yield play


def test_step_scores_of_an_engine_count_in_both_forms_of_the_reward(walk: WalkSteps) -> None:
    sample, asked = walk("--prm-step-coef", "0.5")
    assert asked == 6
    assert sample.reward == {"score": 1.0, "acc": 1.0, "base_score": 1.0, "prm_step_score": 0.0}
    step_wise = sample.metadata["step_wise"]
    assert step_wise["step_scores"] == [1.0, -1.0, None]
    assert step_wise["step_scores_with_outcome"] == [1.5, 0.5, 1.0]
    assert [span.reward for span in spans_of(sample, "score")] == [1.5, 0.5, 1.0]
    assert [step["status"] for step in sample.metadata["prm"]["steps"]] == ["ok", "ok", "invalid_result"]
    metrics = episode_metrics([sample])
    assert metrics["rollout/episode/prm_failed"] == 1.0 and metrics["rollout/episode/prm_score"] == 0.0


def test_single_turn_samples_have_the_same_step_rewards(walk: WalkSteps) -> None:
    samples, _ = walk("--prm-step-coef", "0.5", per_turn=True)
    found = [span for place, sample in enumerate(samples) for span in spans_of(sample, "score", place)]
    assert [(span.index, span.reward, span.start) for span in found] == [
        (0, 1.5, 0),
        (1, 0.5, 0),
        (2, 1.0, 0),
    ]
    assert {sample.reward["score"] for sample in samples} == {1.0}
    assert [len(sample.metadata["prm"]["steps"]) for sample in samples] == [1, 1, 1]


def test_evaluations_use_no_judge(walk: WalkSteps) -> None:
    sample, asked = walk(evaluation=True)
    assert asked == 0 and sample.reward == {"score": 1.0, "acc": 1.0} and "step_wise" not in sample.metadata


def test_an_unknown_judge_is_rejected_at_start(make_args: ParseArgs) -> None:  # noqa: F811
    with pytest.raises(ConfigError, match="--prm-enable has no judge"):
        make_args([{"input": "x"}], *JUDGED)
    with pytest.raises(ConfigError, match="--prm-router-ip would change nothing: it needs --prm-router-port"):
        make_args([{"input": "x"}], *JUDGED, "--prm-router-ip", "127.0.0.1")


def test_the_flags_select_the_judge(make_args: ParseArgs) -> None:  # noqa: F811
    engine = make_args([{"input": "x"}], *JUDGED, "--prm-router-ip", "127.0.0.1", "--prm-router-port", "9")
    assert isinstance(StepJudge.of(engine).model, EngineJudge)
    StepJudge._known.clear()
    api = make_args([{"input": "x"}], *JUDGED, "--prm-url", "http://127.0.0.1:9/v1", "--prm-model", "m")
    assert isinstance(StepJudge.of(api).model, ChatJudge)
    StepJudge._known.clear()


def test_a_vote_fits_the_context_of_the_judges_engine(
    make_args: ParseArgs,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flags = [
        "--prm-max-new-tokens",
        "4096",
        "--backend",
        "sglang",
        "--context-length",
        "512",
        "--prm-num-gpus",
        "1",
    ]
    judge = EngineJudge(make_args([{"input": "x"}], *JUDGED, *flags, "--actor-num-gpus-per-node", "1"))
    asked: list[dict[str, Any]] = []

    async def generate(body: dict[str, Any], timeout: float) -> dict[str, Any]:
        asked.append(body)
        return {"text": "\\boxed{1}"}

    monkeypatch.setattr(judge.pool, "generate", generate)
    message = {"role": "user", "content": "Does it help?"}
    assert asyncio.run(judge.reply([message], 0)) == "\\boxed{1}"
    assert len(asked[0]["input_ids"]) + asked[0]["sampling_params"]["max_new_tokens"] == 512
    with pytest.raises(RewardError, match="fills its context of 512"):
        asyncio.run(judge.reply([{**message, "content": "word " * 2000}], 0))


@pytest.fixture
def api() -> Iterator[Any]:
    """Yields an OpenAI-compatible API that is overloaded once."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            seen.append((self.path, self.headers["authorization"], body))
            status = 503 if len(seen) == 1 else 200
            found = json.dumps({"choices": [{"message": {"content": "so \\boxed{1}"}}]}).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1", seen
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_api_judge_sends_its_key_and_is_retried_when_overloaded(
    make_args: ParseArgs,  # noqa: F811
    api: Any,
) -> None:
    url, seen = api
    words = ["--prm-url", url, "--prm-model", "big", "--prm-api-key", "secret", "--prm-m", "1"]
    args = make_args([{"input": "x"}], *JUDGED, *words, "--prm-temperature", "0.3")

    async def judged() -> Any:
        return await StepJudge(args, ChatJudge(args)).verdict(0, [{"role": "user", "content": "?"}])

    assert asyncio.run(judged())["mean_score"] == 1.0
    path, key, body = seen[1]
    assert (path, key, len(seen)) == ("/v1/chat/completions", "Bearer secret", 2)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("big", 0.3, 2048)
