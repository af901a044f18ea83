"""Tests that a spare engine answers the gate with weights that never go live for users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from slime.engines.client import EngineControl
from slime.engines.spare import SpareEngine
from slime.errors import EngineError
from tests.fakes.sglang import FakeSGLang, Running
from tests.fakes.tiny_engine_model import plain_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PROMPTS = [[3, 4, 5], [7, 8], [9, 10, 11, 12]]


@pytest.fixture
def running(model_path: Path) -> Iterator[Running]:
    found = Running(FakeSGLang(model_path, plain_model))
    yield found
    found.close()


def test_a_spare_sglang_loads_each_version_and_answers_in_order(
    running: Running,
    model_path: Path,
    other_weights: Path,
    reference: PreTrainedModel,
    other_reference: PreTrainedModel,
    log_probs_of: Callable[..., torch.Tensor],
) -> None:
    spare = SpareEngine(running.url)
    for version, folder, model in ((4, other_weights, other_reference), (3, model_path, reference)):
        answers = spare.try_weights(str(folder), version, PROMPTS, 8)
        assert answers is not None
        tables = [log_probs_of(model, prompt)[-1] for prompt in PROMPTS]
        assert [answer["ids"] for answer in answers] == [[int(table.argmax())] for table in tables]
        assert [answer["log_probs"][0] for answer in answers] == pytest.approx(
            [float(table.max()) for table in tables], abs=1e-4
        )
    assert "update 4" in running.fake.calls and "update 3" in running.fake.calls


def test_a_cancelled_check_sends_no_more_requests(running: Running, model_path: Path) -> None:
    spare = SpareEngine(running.url)
    control = spare.control()
    prepare = control.prepare

    def ended_meanwhile(path: str, version: int) -> str:
        spare.discard()
        return prepare(path, version)

    control.prepare = ended_meanwhile  # type: ignore[method-assign]
    with pytest.raises(EngineError, match="the check was cancelled"):
        spare.try_weights(str(model_path), 1, PROMPTS, 8)


def test_an_unreachable_engine_is_retried_later(model_path: Path) -> None:
    with pytest.raises(EngineError, match=r"http://127.0.0.1:9"):
        SpareEngine("http://127.0.0.1:9").try_weights(str(model_path), 1, PROMPTS, 8)


def test_a_malformed_answer_is_an_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = EngineControl("http://127.0.0.1:9", "sglang")
    monkeypatch.setattr(engine, "_call_with", lambda timeout: lambda *words: {"text": "no meta_info"})
    with pytest.raises(EngineError, match=r"/generate: KeyError\('meta_info'\)"):
        engine.answer([1, 2], 8, 0.0)
