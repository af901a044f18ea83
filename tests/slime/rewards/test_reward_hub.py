"""Tests all kinds of rewards: built-in, remote, the user's; and the result if one fails."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import parse_args
from slime.errors import ConfigError, RewardError
from slime.rollout.metrics import reward_failures
from slime.rollout.rm_hub import async_rm, batched_async_rm
from slime.types import Sample
from tests.fakes.fixtures import MakeRewardArgs

OWN = """
import asyncio, threading, time
import numpy

async def by_length(args, sample, **kw):
    return {"score": len(sample.response), "evaluation": kw.get("evaluation")}

def blocking(args, sample):
    time.sleep(0.2)
    return threading.current_thread() is not threading.main_thread()

async def freezes_its_loop(args, sample):
    time.sleep(30)

async def waits(args, sample):
    await asyncio.sleep(30)

def raises(args, sample):
    raise KeyError("no such answer")

def not_a_number(args, sample):
    return float("nan")

def a_text(args, sample):
    return "good"

def nothing(args, sample):
    return None

def infinite_part(args, sample):
    return {"score": numpy.float32("inf")}

def scalar(args, sample):
    return numpy.float64(0.25)

async def group(args, samples, **kw):
    best = max(len(sample.response) for sample in samples)
    return [float(len(sample.response) == best) for sample in samples]

def too_few(args, samples):
    return [1.0]

def wrong(args):
    return lambda: 1

class Judge:
    def __init__(self, path):
        self.path = path

    def score(self, prompt: str, response: str, next_state: str) -> float:
        return len(f"{self.path}|{prompt}|{response}|{next_state}")

def get_reward_model(config):
    return Judge(config["prm_model_path"])

def no_model(config):
    return object()

def three(a, b, c):
    return 0
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    (tmp_path / "own_rm.py").write_text(OWN)
    return str(tmp_path / "own_rm.py")


def sample(index: int = 0, **changes: object) -> Sample:
    return Sample(**({"index": index, "prompt": "1+1=", "response": "2", "label": "2"} | changes))


async def test_the_samples_reward_type_overrides_the_flag(reward_args: MakeRewardArgs) -> None:
    args = reward_args(rm_type="math")
    assert await async_rm(args, sample()) == 1.0
    assert await async_rm(args, sample(response="3")) == 0.0
    dapo = sample(response="Answer: 2", metadata={"rm_type": "dapo"})
    assert (await async_rm(args, dapo))["score"] == 1.0  # type: ignore[index]


async def test_boxed_types_judge_only_the_boxed_answer(reward_args: MakeRewardArgs) -> None:
    args = reward_args(rm_type="boxed_f1")
    assert await async_rm(args, sample(response=r"It is \boxed{red} not blue", label="red")) == 1.0
    assert await async_rm(args, sample(response="red", label="red")) == 0.0


async def test_random_is_the_same_for_the_same_sample(reward_args: MakeRewardArgs) -> None:
    args = reward_args(rm_type="random")
    once = [await async_rm(args, sample(index)) for index in range(40)]
    assert once == [await async_rm(args, sample(index)) for index in range(40)]
    assert {0.0, 1.0} == set(once)


async def test_an_unknown_or_missing_type_is_refused(reward_args: MakeRewardArgs) -> None:
    with pytest.raises(ConfigError, match="unknown reward type 'maths'; known: math"):
        await async_rm(reward_args(rm_type="maths"), sample())
    with pytest.raises(ConfigError, match="--rm-type"):
        await async_rm(reward_args(), sample())
    with pytest.raises(ConfigError, match="--rm-url"):
        await async_rm(reward_args(rm_type="boxed_remote_rm"), sample())


async def test_a_remote_reward_gets_prompt_response_and_label(
    reward_args: MakeRewardArgs, reward_server: Any
) -> None:
    args = reward_args(rm_type="remote_rm", rm_url=f"http://127.0.0.1:{reward_server.server_port}/score")
    assert await async_rm(args, sample()) == 1.0
    assert reward_server.asked == [{"prompt": "1+1=", "response": "2", "label": "2"}]
    reward_server.answers = [(200, '{"score": 0.5, "why": "half"}')]
    assert await async_rm(args, sample()) == {"score": 0.5, "why": "half"}


async def test_a_failing_remote_reward_is_retried(
    reward_args: MakeRewardArgs, reward_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slime.rollout.rm_hub.remote.FIRST_PAUSE", 0.01)
    url = f"http://127.0.0.1:{reward_server.server_port}"
    reward_server.answers = [(503, "busy"), (429, "slow down"), (200, "0.5")]
    assert await async_rm(reward_args(rm_type="remote_rm", rm_url=url), sample()) == 0.5
    reward_server.answers = [(500, "broken")]
    with pytest.raises(RewardError, match=r"sample 7: .*failed 3 times.*status 500"):
        await async_rm(reward_args(rm_type="remote_rm", rm_url=url, rm_retries=2), sample(7))
    reward_server.answers = [(404, "no such page")]
    asked = len(reward_server.asked)
    with pytest.raises(RewardError, match="404: no such page"):
        await async_rm(reward_args(rm_type="remote_rm", rm_url=url), sample())
    assert len(reward_server.asked) == asked + 1, "a refusal is final"
    reward_server.answers = [(200, "fine")]
    with pytest.raises(RewardError, match="returned invalid JSON"):
        await async_rm(reward_args(rm_type="remote_rm", rm_url=url), sample())


async def test_an_unreachable_reward_server_is_reported_within_the_time_limit(
    reward_args: MakeRewardArgs,
) -> None:
    args = reward_args(rm_type="remote_rm", rm_url="http://127.0.0.1:9/", rollout_reward_timeout=0.5)
    began = time.monotonic()
    with pytest.raises(RewardError, match="sample 3"):
        await async_rm(args, sample(3))
    assert time.monotonic() - began < 2


async def test_custom_functions_may_be_async_or_not(reward_args: MakeRewardArgs, own: str) -> None:
    found = await async_rm(
        reward_args(custom_rm_path=f"{own}:by_length"), sample(response="abc"), evaluation=True
    )
    assert found == {"score": 3, "evaluation": True}
    assert await async_rm(reward_args(custom_rm_path=f"{own}:scalar"), sample(), evaluation=True) == 0.25


async def test_functions_that_block_run_side_by_side_in_threads(
    reward_args: MakeRewardArgs, own: str
) -> None:
    args = reward_args(custom_rm_path=f"{own}:blocking")
    began = time.monotonic()
    found = await asyncio.gather(*(async_rm(args, sample(index)) for index in range(8)))
    assert found == [1.0] * 8
    assert time.monotonic() - began < 1.0


async def test_the_documented_reward_model_gets_texts(reward_args: MakeRewardArgs, own: str) -> None:
    args = reward_args(custom_rm_path=own, prm_model_path="m")
    told = sample(metadata={"next_state": "thanks"})
    assert await async_rm(args, told) == len("m|1+1=|2|thanks")
    chat = sample(prompt=[{"role": "user", "content": "hi"}], label=None)
    assert await async_rm(args, chat) == len("m|user: hi|2|")
    assert await batched_async_rm(args, [told, chat]) == [
        await async_rm(args, told),
        await async_rm(args, chat),
    ]


async def test_a_function_of_several_samples_rewards_a_whole_group(
    reward_args: MakeRewardArgs, own: str
) -> None:
    args = reward_args(custom_rm_path=f"{own}:group", group_rm=True)
    group = [sample(0, response="a"), sample(1, response="bb")]
    assert await batched_async_rm(args, group) == [0.0, 1.0]
    assert await async_rm(args, group[0]) == 1.0
    assert await batched_async_rm(reward_args(rm_type="math"), [sample(0), sample(1, response="5")]) == [
        1.0,
        0.0,
    ]
    with pytest.raises(
        RewardError, match=r"samples 0, 1 raised ValueError: it must return a list of 2 rewards"
    ):
        await batched_async_rm(reward_args(custom_rm_path=f"{own}:too_few"), group)


@pytest.mark.parametrize(
    ("name", "kind", "complaint"),
    [
        ("raises", "error", r"raises for sample 5 raised KeyError: 'no such answer'"),
        ("not_a_number", "value", "sample 5 returned nan, not a finite number"),
        ("infinite_part", "value", r"sample 5 returned .*inf.*, not a finite number"),
        ("a_text", "value", "sample 5 returned 'good', not a finite number"),
        ("nothing", "value", "sample 5 returned None, not a finite number"),
        ("waits", "timeout", r"sample 5: no result within 0.2 s"),
        ("freezes_its_loop", "timeout", r"sample 5: no result within 0.2 s"),
    ],
)
async def test_a_failing_reward_is_counted_and_its_sample_named(
    reward_args: MakeRewardArgs, own: str, name: str, kind: str, complaint: str
) -> None:
    args = reward_args(custom_rm_path=f"{own}:{name}", rollout_reward_timeout=0.2)
    with pytest.raises(RewardError, match=complaint):
        await async_rm(args, sample(5))
    assert reward_failures.take_metrics() == {f"rollout/reward_failed/{kind}": 1.0}
    assert reward_failures.take_metrics() == {}


async def test_a_reward_that_only_ever_fails_ends_the_run(reward_args: MakeRewardArgs, own: str) -> None:
    args = reward_args(custom_rm_path=f"{own}:raises", rm_max_failures=3)
    for _ in range(2):
        with pytest.raises(RewardError):
            await async_rm(args, sample())
    with pytest.raises(ConfigError, match="3 consecutive rewards failed"):
        await async_rm(args, sample())
    for _ in range(2):
        with pytest.raises(RewardError):
            await async_rm(args, sample())
    await async_rm(reward_args(rm_type="math"), sample())
    with pytest.raises(RewardError):
        await async_rm(args, sample())


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("three", r"parameters \(a, b, c\).*get_reward_model"),
        ("no_model", "without score"),
        ("wrong", "without score"),
    ],
)
async def test_an_invalid_reward_value_is_rejected(
    reward_args: MakeRewardArgs, own: str, name: str, complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await async_rm(reward_args(custom_rm_path=f"{own}:{name}"), sample())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--rm-type", "maths"], "unknown reward type 'maths'"),
        (["--rm-type", "remote_rm"], "--rm-url"),
        (["--rm-type", "math", "--custom-rm-path", "OWN"], "drop one"),
        (["--custom-rm-path", "OWN:three"], "get_reward_model"),
        (["--rm-concurrency", "0"], "1 or more"),
    ],
)
def test_reward_flags_are_checked_at_start(
    own: str, tmp_path: Path, words: list[str], complaint: str
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "prompts.jsonl").write_text('{"input": "1+1="}\n')
    given = ["--hf-checkpoint", str(tmp_path), "--n-samples-per-prompt", "2"]
    given += ["--prompt-data", str(tmp_path / "prompts.jsonl")]
    words = [word.replace("OWN", own) for word in words]
    with pytest.raises(ConfigError, match=complaint):
        parse_args([*given, *words], env={})
