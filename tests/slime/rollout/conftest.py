"""Arguments as from the command line, prompt files, a real engine, and fake ones that are slow or broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from claw_base.files import write_json
from claw_base.run_folder.records import ProcessRecord
from slime.arguments import Arguments, parse_args
from tests import MODEL, ROOT
from tests.fakes.fixtures import Rows
from tests.fakes.rollout_engine import FakeEngine


@pytest.fixture(scope="session")
def model() -> str:
    """Returns the tiny chat model of this repository, with its tokenizer and chat template."""
    return str(MODEL)


def record_engine(run_dir: Path, url: str, name: str = "engine-0") -> None:
    record = ProcessRecord(name, "engine", os.getpid(), 0.0, url, [], 0.0)
    write_json(run_dir / "processes" / f"{name}.json", asdict(record))


MakeArgs = Callable[..., Any]


@pytest.fixture
def make_args(tmp_path: Path, model: str) -> MakeArgs:
    """f(rows, *words, rm="random"): parsed arguments of a run over these prompt rows, in its own folder.

    Evaluation data sets imply an --eval-interval.
    """

    def make(rows: list[dict[str, Any]] | str | None, *words: str, rm: str | None = "random") -> Arguments:
        if isinstance(rows, list):
            path = tmp_path / "prompts.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            rows = str(path)
        data = ["--disable-rollout-global-dataset"] if rows is None else ["--prompt-data", rows]
        common = ["--hf-checkpoint", model, "--run-dir", str(tmp_path / "run")]
        common += ["--rm-type", rm] if rm else []
        common += ["--disable-rewards-normalization", "--rollout-max-response-len", "8"]
        evaluates = any(word.startswith("--eval-") for word in words) and "--eval-interval" not in words
        return parse_args([*common, *data, *words, *["--eval-interval", "1"] * evaluates], env={})

    return make


@pytest.fixture
def rows() -> Rows:
    return [{"input": f"{a}+1=", "label": str(a + 1)} for a in range(20)]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    """Yields a fake engine that the run of `make_args` uses."""
    with FakeEngine() as engine:
        record_engine(tmp_path / "run", engine.url)
        yield engine


@pytest.fixture
def another_fake(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine() as engine:
        record_engine(tmp_path / "run", engine.url, "engine-1")
        yield engine


@pytest.fixture
def add_engine() -> Callable[..., None]:
    """f(run_dir, url, name="engine-0"): registers an engine with this address in the run."""
    return record_engine


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """Yields an engine process as users start it, with the tiny chat model."""
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded"]
    command += ["--model-path", str(MODEL), "--port", "0"]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "slime"), os.environ.get("PYTHONPATH", "")]),
    }
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["url"]
    process.terminate()
    process.wait(20)
    process.stdout.close()


@pytest.fixture
def engine(tmp_path: Path, engine_url: str) -> str:
    """Registers the real engine in the run of `make_args`; returns its URL."""
    record_engine(tmp_path / "run", engine_url)
    return engine_url
