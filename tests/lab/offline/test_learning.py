"""The learning benchmark in one process: it learns, is reproducible, and equals the real loop."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from claw_lab import environment
from claw_lab.benchmarks.learning import sessions_to_preference
from claw_lab.offline import lr_search
from claw_lab.offline.local_loop import ChatModel, LocalLoop, Talk
from claw_lab.offline.measures import ask, explicit_wishes, fresh_problems, preferences
from claw_lab.offline.memory import KEPT, Memory
from claw_lab.offline.methods import METHODS, Setting
from claw_lab.offline.replay import replay
from claw_lab.offline.statistics import mean_curve, mean_interval, summary
from claw_lab.offline.trial import Plan, Trial
from openclaw.trainer_hooks import anchors
from openclaw_test.evaluation.plot import chart
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.real_loop import running_loop
from openclaw_test.people.scripted_user import ScriptedUser
from openclaw_test.people.tastes import STUDENT
from tests import ROOT

MakeLoop = Callable[..., LocalLoop]

LEARNING = [method for method in METHODS.values() if method.flags is not None]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def chat() -> ChatModel:
    return ChatModel(str(ROOT / "openclaw-test" / "tiny_claw" / "model"))


@pytest.fixture
def make_loop(chat: ChatModel) -> Iterator[MakeLoop]:
    loops: list[LocalLoop] = []

    def make(method: str, seed: int = 0, **changes: object) -> LocalLoop:
        loops.append(LocalLoop(chat, replace(Setting(METHODS[method]), **changes), seed))
        return loops[-1]

    yield make
    for loop in loops:
        loop.close()


def talk(loop: LocalLoop, sessions: int, seed: int = 0, person: str | None = None) -> list[str]:
    """Plays sessions in order; returns every reply."""
    user, replies = ScriptedUser(seed), []
    for number in range(sessions):
        session, conversation = user.session(), Talk([], f"s{number}", person=person)
        said: str | None = session.opening
        while said is not None:
            loop.follow(conversation, said)
            replies += loop.say([conversation])
            said = session.next_message(replies[-1])
            loop.learn()
        loop.end(conversation)
    return replies


@pytest.mark.parametrize("method", LEARNING, ids=lambda method: method.name)
def test_every_method_trains_on_feedback(method: Any, make_loop: MakeLoop) -> None:
    loop = make_loop(method.name, batch=2)
    talk(loop, 4)
    assert loop.version >= 1
    assert loop.store.versions.live() == loop.version
    # two equal scores have no training signal
    assert any(metrics["grad_norm"] > 0 for metrics in loop.metrics)
    one_version = [metrics.get("train_rollout_logprob_abs_diff_max", 0.0) for metrics in loop.metrics]
    assert max(one_version) < 1e-3
    counts = loop.store.status.counts()
    assert counts["samples"]["trained"] == 2 * loop.version
    assert set(counts["dropped"]) <= {"session_done", "neutral_score", "no_hint", "no_signal"}


def test_the_same_seed_gives_the_same_conversations_and_updates(make_loop: MakeLoop) -> None:
    one, other = make_loop("binary_rl", seed=5, lr=2e-3), None
    first = talk(one, 4, seed=5)
    losses = [metrics["loss"] for metrics in one.metrics]
    other = make_loop("binary_rl", seed=5, lr=2e-3)
    assert talk(other, 4, seed=5) == first
    assert [metrics["loss"] for metrics in other.metrics] == losses


def test_people_can_be_answered_by_an_older_version_as_in_a_real_loop(make_loop: MakeLoop) -> None:
    loop = make_loop("binary_rl", batch=2, behind=1)
    talk(loop, 4)
    assert loop.version >= 2
    assert loop.store.versions.live() == loop.chat.engine.version == loop.version - 1


def test_anchors_are_trained_in_a_separate_step_and_do_not_change_other_samples(
    make_loop: MakeLoop,
) -> None:
    plain = make_loop("topk_select", batch=2, extra=("--replay-steps", "0", "--anchor-share", "0"))
    talk(plain, 2)
    first, plain_names = plain.metrics[0], set(plain.metrics[0])
    anchored = make_loop("topk_select", batch=2, extra=("--replay-steps", "0"))
    talk(anchored, 2)
    found = anchored.metrics[0]
    assert (found["loss"], found["grad_norm"]) == (first["loss"], first["grad_norm"])
    assert found["num_samples"] == first["num_samples"] == 2
    assert found["train_rollout_logprob_abs_diff_max"] < 1e-3
    assert found["companion_grad_norm"] > 0
    assert not any(name.startswith("companion") for name in plain_names)


def test_a_remembered_preference_works_at_once_and_is_distilled_from_answers_given_with_it(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    distilled: list[Any] = []
    row = anchors.memory_row
    monkeypatch.setattr(anchors, "memory_row", lambda *given: distilled.append(row(*given)) or row(*given))
    loop = make_loop(
        "topk_select", batch=2, memory=True, extra=("--replay-steps", "1", "--anchor-share", "0")
    )
    talk(loop, 5, person="ada")
    wishes = loop.store.memory.wishes("ada")
    turns = loop.store.memory.canary_turns("ada", 10)
    assert any(turn.memory for turn in turns) and not turns[-1].memory
    assert wishes and all(wish.details["version"] == loop.version for wish in wishes if wish.in_prompt)
    assert max(one["train_rollout_logprob_abs_diff_max"] for one in loop.metrics) < 1e-3
    sampled = {turn.id: turn for turn in turns}
    known = [(one, sampled[id_]) for one in distilled if (id_ := one["metadata"]["turn_id"]) in sampled]
    assert known
    for one, turn in known:
        assert one["teacher_tokens_candidates"] == [turn.prompt_ids + turn.completion_ids]
        plain = loop.chat.format.render(turn.messages, None, True)
        assert one["tokens"] == plain + turn.completion_ids != turn.prompt_ids + turn.completion_ids


def test_a_habit_is_learned_within_ten_conversations_and_explicit_requests_are_still_followed(
    chat: ChatModel, make_loop: MakeLoop
) -> None:
    before = explicit_wishes(chat, 100, "search").lists
    loop = make_loop("topk_select", seed=100)
    talk(loop, 10, seed=100)
    replies = ask(chat, fresh_problems(100, 100), 100)
    assert preferences(replies, [STUDENT])["student"] >= 0.8
    after = explicit_wishes(chat, 100, "search").lists
    # the benchmark's threshold over many seeds; without anchors the share is about 0.1
    assert sum(after.values()) >= 0.6 * sum(before.values())
    assert loop.metrics[-1]["num_steps"] == 11


def test_the_memory_without_training_adds_hints_to_the_next_prompts(
    chat: ChatModel, make_loop: MakeLoop
) -> None:
    loop, memory = make_loop("memory"), Memory()
    conversation = Talk([], "s", memory)
    loop.follow(conversation, "Tom has 12 apples and buys 5 more. How many apples does he have?")
    loop.say([conversation])
    loop.follow(conversation, "Please no bullet points, write it naturally.")
    loop.learn()
    memory.add(loop.hints)
    assert memory.hints == ["Please no bullet points, write it naturally."]
    other = Talk([], "t", memory)
    loop.follow(other, "What is 3 + 4?")
    loop.say([other])
    assert other.last is not None
    assert "write it naturally" in chat.format.tokenizer.decode(other.last.prompt_ids)
    assert loop.version == 0


def test_the_memory_keeps_the_newest_hints() -> None:
    memory = Memory()
    memory.add(["a", "b", "a", *(f"hint {n}" for n in range(KEPT - 1))])
    assert memory.hints == ["a", *(f"hint {n}" for n in range(KEPT - 1))]
    assert memory.put_into([{"role": "user", "content": "Hi"}])[0]["content"].endswith(
        "a hint 0 hint 1 hint 2"
    )


def test_the_offline_loop_produces_the_samples_and_weights_of_the_real_loop(tmp_path: Path) -> None:
    """Judgements, samples and the checksums of every live version of a real run are reproduced bit for bit."""

    async def converse(url: str) -> None:
        async with ChatClient(url, api_key=os.environ.get("SGLANG_API_KEY", "")) as client:
            user = ScriptedUser(1)
            while (await client.status())["weight_version"] < 2:
                session, messages = user.session(), []
                said: str | None = session.opening
                while said is not None:
                    messages.append({"role": "user", "content": said})
                    answer = await client.chat(messages, session_id=f"s{id(session)}", max_tokens=200)
                    assert answer.error is None
                    messages.append({"role": "assistant", "content": answer.text})
                    said = session.next_message(answer.text)

    script = ROOT / "openclaw-combine" / "run_tiny_openclaw_topk_select.sh"
    with running_loop(tmp_path / "run", script=script) as loop:
        asyncio.run(asyncio.wait_for(converse(loop.url), 120))
    agreement = replay(tmp_path / "run")
    assert agreement.versions >= 2
    assert agreement.same_weights == agreement.versions
    assert agreement.same_samples == agreement.turns >= 8
    assert agreement.largest_log_prob_gap < 1e-4


def result(seed: int, sessions: int | None, lr: float = 1e-3, **late: float) -> dict[str, Any]:
    found = {"preference": 0.9, "accuracy_greedy": 1.0, "steps_kept": 0.99, "bare": 0.0, "updates": 9} | late
    curve = [(3, 0.1), (6, 0.2 + seed / 10)]
    return {
        "job": {"method": "binary_rl", "seed": seed, "lr": lr}, "sessions_to_preference": sessions,
        "sessions_to_three": 12, "preference_before": 0.1, "curve": curve, "late": found, "seconds": 1.0,
    }  # fmt: skip


def test_intervals_are_those_of_students_t() -> None:
    assert mean_interval([2.0, 4.0, 6.0]) == {"mean": 4.0, "plus_minus": pytest.approx(3.3716, abs=1e-3)}
    assert mean_interval([5.0]) == {"mean": 5.0}


def test_a_trial_that_misses_the_target_is_counted() -> None:
    line = summary([result(0, 20), result(1, None)], most=60)
    assert line["sessions_to_preference"]["mean"] == 40
    assert line["sessions_to_preference"]["not_reached"] == 1
    assert line["after_40_sessions"]["collapsed"] == 0
    assert "after_10_sessions" in summary([result(0, None)], most=10)
    assert mean_curve([result(0, 20), result(2, 20)]) == [(3, pytest.approx(0.1)), (6, pytest.approx(0.3))]


def test_the_search_selects_the_highest_learning_rate_without_regressions() -> None:
    results = [
        result(0, 30, lr=5e-4), result(0, 20, lr=1e-3), result(1, 20, lr=1e-3),
        result(0, 10, lr=2e-3), result(1, 10, lr=2e-3, accuracy_greedy=0.98),
    ]  # fmt: skip
    assert lr_search.choice(results)["lr"] == 1e-3
    results.append(result(2, 20, lr=1e-3, bare=0.4))
    assert lr_search.choice(results)["lr"] == 5e-4


def test_a_chart_is_svg_with_a_line_for_each_method() -> None:
    svg = chart({"A & B": [(3, 0.1), (6, 0.9)], "C": [(3, 0.2)]}, "Title", 0.8)
    assert svg.count("<polyline") == 3
    assert "A &amp; B" in svg


def test_a_trial_reports_sessions_and_measures_of_the_model(
    chat: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("claw_lab.offline.measures.GREEDY", 20),
        ("claw_lab.offline.measures.WISHES", 2),
    ):
        monkeypatch.setattr(name, value)
    monkeypatch.setattr("claw_lab.offline.measures.fresh_problems.__defaults__", (20,))
    found = Trial(chat, Setting(METHODS["binary_rl"]), Plan((STUDENT,), most=3), seed=1).run()
    json.dumps(found)
    assert found["sessions"] == 3
    assert [count for count, _ in found["curve"]] == [3]
    assert 0 <= found["late"]["preference"] <= 1
    assert found["late"]["entropy"] > 0
    assert found["late"]["kl_to_start"] > -0.5
    assert set(found["wishes_before"]) <= set(found["late"])
    assert found["late"]["wishes_kept"] in (True, False)


def test_the_benchmark_reports_its_cost() -> None:
    command = [sys.executable, "-m", "claw_lab.benchmarks.learning.sessions_to_preference", "--help"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "than 95 % of its replies" in " ".join(done.stdout.split())


def test_the_gpu_benchmark_uses_the_flags_of_the_launch_scripts() -> None:
    """Checks the flags of the benchmark's method for tiny-claw."""
    defaults = dict(re.findall(r"default (\w+) (\S+)", (ROOT / "openclaw-combine" / "flags.sh").read_text()))
    written = (ROOT / "launch" / "gpu.sh").read_text()
    method = METHODS["topk_select_gpu"]
    words = Setting(method).flags("model", "run", 0)
    said = {flag: words[at + 1] for at, flag in enumerate(words[:-1]) if flag.startswith("--")}
    assert said["--distill-topk"] == defaults["OPENCLAW_TOPK_K"]
    assert said["--topk-adv-diff-clip"] == defaults["OPENCLAW_TOPK_ADV_DIFF_CLIP"]
    assert said["--hint-selection"] == defaults["OPENCLAW_TOPK_HINT_SELECTION"]
    assert said["--hint-m"] == defaults["OPENCLAW_TOPK_MAX_CAND"] and method.votes == int(defaults["PRM_M"])
    for flag in ("--rollout-batch-size", "--weight-decay", "--eps-clip-high"):
        assert f"{flag} {said[flag]}" in written
    assert "--custom-reward-post-process-path" not in said and "--use-kl-loss" not in words
    assert "--calculate-per-token-loss" not in words and "calculate-per-token" not in written


def test_a_trial_without_a_learning_rate_uses_the_methods_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = sessions_to_preference.parse(["--methods", "topk_select", "binary_rl", "--seeds", "1"])
    jobs = sessions_to_preference.jobs_of(options)
    assert [job["lr"] for job in jobs] == [2e-3, 3e-3]
    late = {"sessions": 40, "preference": 0.9, "accuracy_greedy": 1.0, "steps_kept": 0.9}
    sessions_to_preference.report({"job": jobs[0], "sessions_to_preference": 9, "late": late, "seconds": 1.0})
    assert "topk_select joint seed 0 lr 0.002: 9 sessions" in capsys.readouterr().err
