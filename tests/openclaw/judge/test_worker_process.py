"""Judge workers as the processes they are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from openclaw.judge import worker as worker_module
from openclaw.store import RolloutStore
from openclaw.types import Turn, Vote

THREADS = "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"
METHOD = """
from openclaw.types import Drop, SampleDraft
def method(turn, judgements):
    score = judgements[0].score
    return SampleDraft(turn_id=turn.id, reward={"score": score}) if score else Drop("neutral_score")
"""


@contextmanager
def worker(folder: Path, *flags: str, name: str = "judge-0") -> Iterator[subprocess.Popen[str]]:
    (folder / "a_method.py").write_text(METHOD)
    command = [sys.executable, "-m", "openclaw.judge.worker", "--rl-buffer-dir", str(folder)]
    command += ["--method-path", "a_method:method", "--worker-name", name, *flags]
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": paths}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.05)


def test_a_worker_judges_answered_turns_and_exits_at_sigterm(
    tmp_path: Path, store: RolloutStore, answer: Callable[[str], Turn]
) -> None:
    for text in ("Thanks!", "That's wrong.", "Who wrote Hamlet?"):
        answer(text)
    with worker(tmp_path) as process:
        _until(lambda: store.status.counts()["turns"].get("judged", 0) == 3)
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=10)
    assert process.returncode == 0, log
    assert store.status.counts()["samples"] == {"ready": 2, "dropped": 1}
    assert "Hamlet" not in log and "judge stopped" in log


def test_a_killed_workers_turns_are_judged_by_the_next_worker(
    tmp_path: Path, store: RolloutStore, answer: Callable[[str], Turn]
) -> None:
    turns = [answer("Thanks!") for _ in range(40)]
    with worker(tmp_path) as process:
        _until(lambda: store.status.counts()["turns"].get("judged", 0) > 0)
        process.kill()
    store.judgements.claim("judge-0", limit=5, claim_seconds=1000)
    with worker(tmp_path):
        _until(lambda: store.status.counts()["turns"].get("judged", 0) == 40)
    assert [len(store.judgements.of_turn(turn.id)) for turn in turns] == [1] * 40


def test_two_workers_judge_every_turn_once(
    tmp_path: Path, store: RolloutStore, answer: Callable[[str], Turn]
) -> None:
    with worker(tmp_path, name="judge-0"), worker(tmp_path, "--votes", "3", name="judge-1"):
        turns = [answer("Perfect, thank you.") for _ in range(30)]
        _until(lambda: store.status.counts()["turns"].get("judged", 0) == 30)
    for turn in turns:
        (judgement,) = store.judgements.of_turn(turn.id)
        assert judgement.votes in ([Vote(score=1, text=judgement.votes[0].text)] * n for n in (1, 3))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--method-path", "nowhere:f"), "--method-path nowhere:f"),
        (("--method-path", "a_method:METHOD"), "--method-path a_method:METHOD"),
        (
            ("--backend", "openai", "--judge-url", "x", "--judge-model", "m"),
            "'x/chat/completions' is not an address",
        ),
    ],
)
def test_an_invalid_setting_is_rejected_in_one_line(
    tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    with worker(tmp_path, *flags) as process:
        _, error = process.communicate(timeout=20)
    assert process.returncode == 2
    assert message in error and error.count("\n") == 1


def test_a_judge_needs_no_training_library() -> None:
    script = "import sys, openclaw.judge.worker, openclaw.trainer_hooks.lease; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_environment()
    )
    assert not {"torch", "transformers", "ray", "slime"} & set(modules.stdout.split())


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_a_worker_multiplies_with_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str | None] = []

    async def serve(_: object) -> None:
        used.extend(os.environ.get(name) for name in THREADS)

    for name in THREADS:
        monkeypatch.setenv(name, "4")
        monkeypatch.delenv(name)
    monkeypatch.setattr(worker_module, "serve", serve)
    assert worker_module.main(["--rl-buffer-dir", str(tmp_path), "--method-path", "a_method:method"]) == 0
    assert used == ["1", "1"]
