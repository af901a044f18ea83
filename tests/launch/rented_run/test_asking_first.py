"""A service is queried before a run starts: a rejection is one line, and an unavailable service is left to the
run."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from claw_base.run_folder.usage import usage_of
from rented_run import main
from rented_run.main import ask_first
from slime.errors import ConfigError
from slime.rented.service import ServiceRefuses
from tests import MODEL
from tests.fakes.local_service import LocalService, move_in


@pytest.fixture
def args(tmp_path: Path) -> SimpleNamespace:
    move_in()
    return SimpleNamespace(
        rented_service="tests.fakes.local_service:LocalService", rented_model=str(MODEL), rented_url="",
        hf_checkpoint=str(MODEL), run_dir=str(tmp_path / "run"),
    )  # fmt: skip


def test_a_service_that_accepts_the_run_is_checked_silently_and_its_tokens_are_counted(
    args: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    ask_first(args)
    assert "service" not in capsys.readouterr().err  # transformers' own output is ignored
    assert usage_of(args.run_dir)["serving"]["prefill"] > 50


def test_another_models_tokenizer_is_rejected_in_one_line(args: SimpleNamespace, tmp_path: Path) -> None:
    for path in MODEL.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    tokenizer = json.loads((MODEL / "tokenizer.json").read_text())
    words = list(tokenizer["model"]["vocab"])
    random.Random(0).shuffle(words)
    tokenizer["model"]["vocab"] = {word: number for number, word in enumerate(words)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    args.hf_checkpoint = str(tmp_path)
    with pytest.raises(ConfigError, match="does not belong to the model at the service") as refusal:
        ask_first(args)
    assert "\n" not in str(refusal.value)


def test_settings_that_the_service_rejects_are_rejected_before_the_start(
    args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(service: LocalService) -> None:
        raise ServiceRefuses("no such account")

    monkeypatch.setattr(LocalService, "check", refuse)
    with pytest.raises(ConfigError, match="the service refuses this run: no such account"):
        ask_first(args)


@pytest.mark.parametrize("silent", [False, True])
def test_an_unavailable_service_is_logged_in_one_line_and_the_run_starts(
    silent: bool, args: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    over = threading.Event()
    if silent:
        monkeypatch.setattr(LocalService, "check", lambda service: over.wait(60))
        monkeypatch.setattr(main, "TIMEOUT", 0.05)
    else:
        move_in().away = 9
    ask_first(args)
    over.set()
    told = capsys.readouterr().err
    assert told.startswith("the service does not answer, the run starts and waits for it: ")
    assert told.count("\n") == 1
