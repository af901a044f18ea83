"""Data of the gate's checks: liked answers old and new, the newest answers, and questions of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.errors import ConfigError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.store import RolloutStore
from openclaw.trainer_hooks import gate_samples
from openclaw.types import Turn
from tests.fakes.gateway_model import build_model
from tests.fakes.hook_flags import hook_flags, pipeline_on

MakeFlags = Callable[..., SimpleNamespace]

MakeSample = Callable[..., Turn]


@pytest.fixture
def make_args(tmp_path: Path, model: Path) -> MakeFlags:
    def make(**changes: object) -> Any:
        return hook_flags(str(tmp_path / "gate"), hf_checkpoint=str(model), **changes)

    return make


def test_liked_answers_are_chosen_across_sessions_and_people(
    store: RolloutStore, make_sample: MakeSample
) -> None:
    make_sample(reward=-1.0, session_id="disliked")
    for number in range(6):
        make_sample(session_id="one talk")
        make_sample(session_id=f"of ann {number}", person="ann")
        make_sample(session_id=f"of {number}", person=f"person {number}")
    liked = store.gate_turns.liked(8)
    sessions = [turn.session_id for turn in liked]
    assert len(set(sessions)) == len(sessions) == 8 and "disliked" not in sessions
    assert sum(turn.person == "ann" for turn in liked) <= 4
    assert [turn.id for turn in store.gate_turns.liked(8)] == [turn.id for turn in liked]


def test_quarantined_answers_are_not_used_as_examples(store: RolloutStore, make_sample: MakeSample) -> None:
    make_sample(session_id="of a corner")
    store.versions.weights_live(-1, 0, None, True, None, None)
    store.samples.lease(0, 1)
    assert len(store.gate_turns.liked(8)) == 1
    store.versions.weights_live(0, 1, 0, False, None, None)
    store.versions.roll_back(0, drop_turns=True)
    assert store.gate_turns.liked(8) == [], "who went back would be held to them"
    store.quarantine.release()
    assert len(store.gate_turns.liked(8)) == 1


def test_samples_have_a_purpose_and_the_sampled_ids(
    store: RolloutStore,
    make_sample: MakeSample,
    make_args: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(gate_samples, "pipeline_of", lambda args: pipeline_on(store, args))
    turn = make_sample(session_id="a")
    unliked = make_sample(reward=-1.0, session_id="b")
    found = {one["metadata"]["key"]: one for one in gate_samples.gate_samples(make_args(), 0, 0)}
    assert found[turn.id]["metadata"]["gate"] == "liked"
    assert found[unliked.id]["metadata"]["gate"] == "recent"
    assert found[turn.id]["tokens"] == turn.prompt_ids + turn.completion_ids
    assert found[turn.id]["rollout_log_probs"] == turn.completion_log_probs
    short = gate_samples.gate_samples(make_args(gate_longest=2), 0, 0)
    assert short == []
    assert "on 0 of 2 answers: the others have more than 2 tokens" in caplog.text


def test_questions_of_a_file_become_prompts_with_the_answer_as_label(
    make_args: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "1+1?"}], "answer": 2}\n')
    [question] = gate_samples.questions(file, make_args().hf_checkpoint)
    assert question["label"] == "2" and question["response_length"] == 0 and len(question["tokens"]) > 3
    assert question["metadata"] == {"gate": "question", "key": "question-1"}
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"messages": "?"}\n')
    with pytest.raises(ConfigError, match=r"broken.jsonl:1 is not a question"):
        gate_samples.questions(broken, make_args().hf_checkpoint)


def test_requests_of_a_file_become_prompts_with_the_form_as_label(
    make_args: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "wishes.jsonl"
    file.write_text('{"messages": [{"role": "user", "content": "A list, please."}], "form": "^1[.] "}\n')
    [wish] = gate_samples.questions(file, make_args().hf_checkpoint)
    assert wish["label"] == "^1[.] " and wish["metadata"] == {"gate": "wish", "key": "wish-1"}
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"messages": [{"role": "user", "content": "A list, please."}], "form": "^(1"}\n')
    with pytest.raises(ConfigError, match=r"broken.jsonl:1 is not a question"):
        gate_samples.questions(broken, make_args().hf_checkpoint)


def test_a_row_with_a_system_message_is_skipped_if_the_template_has_none(
    make_args: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    render = gate_samples.ChatFormat.render

    def strict(format_: Any, messages: list[dict[str, Any]], *more: Any) -> Any:
        if any(one["role"] == "system" for one in messages):
            raise ValueError("System role not supported")
        return render(format_, messages, *more)

    monkeypatch.setattr(gate_samples.ChatFormat, "render", strict)
    rows = [
        {"messages": [{"role": role, "content": "Lists."}, {"role": "user", "content": "1?"}], "answer": "1"}
        for role in ("system", "user")
    ]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    found = gate_samples.questions(file, make_args().hf_checkpoint)
    assert [one["metadata"]["key"] for one in found] == ["question-2"]


def test_reasoning_that_a_template_always_opens_is_closed_for_questions_without_it(tmp_path: Path) -> None:
    folder = build_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "qwen2"}))
    template = "{{ messages[0].content }}{% if add_generation_prompt %}{{ '<think>\\n' }}{% endif %}"
    tokens = {"eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    file = tmp_path / "questions.jsonl"
    row = {"messages": [{"role": "user", "content": "1+1?"}], "answer": "2"}
    file.write_text("\n".join(json.dumps({**row, "thinking": thinking}) for thinking in (False, True)))
    closed, left_open = gate_samples.questions(file, str(folder))
    text = Tokenizer(folder).decode
    assert text(closed["tokens"]) == "1+1?<think>\n</think>\n\n"
    assert text(left_open["tokens"]) == "1+1?<think>\n"
