"""A judge model on a real engine: the tiny model, which cannot judge, but must be asked and read without a fault."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from openclaw.judge.backends.base import make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.settings import JudgeSettings
from tests import ROOT

MODEL = ROOT / "openclaw-test" / "tiny_claw" / "model"


@pytest.fixture
def engine_url() -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "slime.engines.launch",
        "--backend",
        "embedded",
        "--model-path",
        str(MODEL),
    ]
    command += ["--host", "127.0.0.1", "--port", "0", "--threads", "1"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "slime"), *filter(None, sys.path)])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


async def test_votes_of_a_real_engine_differ_by_seed_and_repeat_by_seed(engine_url: str) -> None:
    settings = JudgeSettings(
        judge_backend="engine",
        judge_engine_url=(engine_url,),
        prm_model_path=str(MODEL),
        prm_max_new_tokens=12,
        prm_temperature=1.5,
        judge_cache_size=0,
    )
    question = JudgeQuestion(
        response="7", next_state=[{"role": "user", "content": "谢谢!"}], role="user", messages=[]
    )
    backend = make_backend(settings, JudgeMetrics("engine"))
    async with asyncio.timeout(60):
        first, second = [await backend.eval_votes(question, 3) for _ in range(2)]
    await backend.close()
    assert [vote.text for vote in first] == [vote.text for vote in second]
    assert len({vote.text for vote in first}) > 1
    assert backend.name == "engine:model" and backend.prompt_name.startswith("eval@")
