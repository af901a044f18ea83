"""Conversation files become turns for judges and trainers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.errors import ConfigError, StoreError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.store import RolloutStore
from openclaw.store.files.conversations import read_conversations
from openclaw.store.files.tokenizing import import_conversations
from openclaw.trainer_hooks.rows import sample_dict
from openclaw.types import Judgement, SampleDraft, Turn, Vote
from tests import MODEL

DOCUMENTED: dict[str, Any] = {
    "session_id": "user_session_abc123",
    "turns": [
        {
            "type": "main",
            "prompt": "Help me refactor this function to use async/await",
            "response": "Here's the refactored version: ...",
            "next_state": "User accepted the change and said 'perfect, thanks!'",
            "trainable": True,
        },
        {"type": "side", "prompt": "What is 2+2?", "response": "4", "trainable": False},
    ],
}

Import = Callable[..., dict[str, int]]


@pytest.fixture
def load(store: RolloutStore, tmp_path: Path) -> Import:
    def load(*conversations: Any, name: str = "talks.jsonl") -> dict[str, int]:
        file = tmp_path / name
        file.write_text("".join(json.dumps(one) + "\n" for one in conversations))
        return import_conversations(store, file, MODEL)

    return load


def _turns(store: RolloutStore, session_id: str) -> list[Turn]:
    with store.database.reading() as connection:
        ids = connection.exec_driver_sql(
            f"SELECT id FROM turn WHERE session_id = '{session_id}' ORDER BY turn_index"
        ).scalars()
        turns = [store.turns.get(id_) for id_ in ids]
    return [turn for turn in turns if turn is not None]


def test_the_documented_example_is_imported(store: RolloutStore, load: Import) -> None:
    assert load(DOCUMENTED) == {"sessions": 1, "known": 0, "answered": 1, "side": 1}
    main, side = _turns(store, "user_session_abc123")
    assert main.next_state == [{"role": "user", "content": DOCUMENTED["turns"][0]["next_state"]}]
    assert (main.turn_type, main.source, main.state) == ("main", "import", "answered")
    assert (side.turn_type, side.state, side.messages) == (
        "side",
        "side",
        [{"role": "user", "content": "What is 2+2?"}],
    )


def test_a_turn_is_tokenised_in_the_models_own_format(store: RolloutStore, load: Import) -> None:
    load(DOCUMENTED)
    turn = _turns(store, "user_session_abc123")[0]
    tokenizer = Tokenizer(MODEL)
    text = tokenizer.decode(turn.prompt_ids + turn.completion_ids)
    assert text == (
        "<|im_start|>user\nHelp me refactor this function to use async/await<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\nHere's the refactored version: ...<|im_end|>"
    )
    assert turn.completion_log_probs is None and turn.version_spans == []
    assert turn.tokenizer_fingerprint == tokenizer.fingerprint


def test_a_special_token_spelled_in_a_text_is_text(store: RolloutStore, load: Import) -> None:
    turns = [{"prompt": "<|im_end|>", "response": "a<|im_end|>b", "next_state": "so?"}]
    load({"session_id": "s", "turns": turns})
    (turn,) = _turns(store, "s")
    tokenizer = Tokenizer(MODEL)
    end = tokenizer.token_id("<|im_end|>")
    assert turn.completion_ids.count(end) == turn.prompt_ids.count(end) == 1
    assert tokenizer.decode(turn.completion_ids) == "a<|im_end|>b<|im_end|>"


def test_main_turns_are_linked_as_parents_and_next_states(store: RolloutStore, load: Import) -> None:
    turns = [
        {"type": "main", "prompt": "What is 2+2?", "response": "5"},
        {"type": "side", "prompt": "title?", "response": "sums"},
        {"type": "main", "prompt": "No, look again.", "response": "4", "trainable": False},
        {
            "type": "main",
            "prompt": "And 3+3?",
            "response": "6",
            "next_state_role": "tool",
            "next_state": "ok",
        },
        {"type": "main", "prompt": "Bye", "response": "Bye"},
    ]
    counts = load({"session_id": "s", "person": "ann", "turns": turns})
    assert counts == {"sessions": 1, "known": 0, "answered": 2, "side": 1, "untrainable": 1, "imported": 1}
    first, side, second, third, last = _turns(store, "s")
    assert first.next_state == [{"role": "user", "content": "No, look again."}]
    assert len(side.messages) == 1 and side.person == "ann"
    assert [message["content"] for message in third.messages] == [
        "What is 2+2?",
        "5",
        "No, look again.",
        "4",
        "And 3+3?",
    ]
    assert second.state_reason == "not_trainable" and second.next_state is None
    assert third.next_state == [{"role": "tool", "content": "ok"}]
    assert last.state == "imported" and last.next_state is None


def test_an_imported_turn_is_judged_and_leased_without_engine_log_probs(
    store: RolloutStore, load: Import
) -> None:
    load(DOCUMENTED)
    (turn,) = store.judgements.claim("w", 5, 60)
    judged = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="test")
    store.judgements.finish(turn.id, [judged], SampleDraft(turn_id=turn.id, reward=1.0))
    (record,) = store.samples.lease(0, 1)
    sample = sample_dict(record, 0)
    assert sample["rollout_log_probs"] is None and sample["version_spans"] == []
    assert sample["tokens"] == turn.prompt_ids + turn.completion_ids and sample["temperature"] == 1.0


@pytest.mark.every_database
def test_importing_twice_stores_turns_once(store: RolloutStore, load: Import) -> None:
    load(DOCUMENTED)
    assert load(DOCUMENTED) == {"sessions": 1, "known": 2}
    assert store.status.counts()["turns"] == {"answered": 1, "side": 1}


def test_a_conversation_that_does_not_fit_the_context_is_counted(store: RolloutStore, load: Import) -> None:
    turns = [{"prompt": "long " * 120_000, "response": "ok", "next_state": "good"}]
    assert load({"session_id": "s", "turns": turns})["untrainable"] == 1
    assert store.status.counts()["dropped"] == {"context_length_exceeded": 1}


@pytest.mark.parametrize("shape", ["object", "list", "lines", "folder"])
def test_every_supported_file_format_is_read(tmp_path: Path, shape: str) -> None:
    two = [DOCUMENTED, {**DOCUMENTED, "session_id": "second"}]
    file = tmp_path / "talks.json"
    match shape:
        case "object":
            file.write_text(json.dumps(two[0], indent=2))
        case "list":
            file.write_text(json.dumps(two))
        case "lines":
            file.write_text("\n\n".join(map(json.dumps, two)))
        case "folder":
            file.write_text(json.dumps(two[0]))
            (tmp_path / "more.jsonl").write_text(json.dumps(two[1]))
            (tmp_path / "notes.txt").write_text("not a conversation")
    found = [one.session_id for _, one in read_conversations(tmp_path if shape == "folder" else file)]
    assert sorted(found) == ["second", "user_session_abc123"][: len(found)] or shape == "object"
    assert len(found) == (1 if shape == "object" else 2)


def _with(**changes: object) -> dict[str, Any]:
    return {"session_id": "bad", "turns": [{"prompt": "p", "response": "r", **changes}]}


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"turns": []}, r"talks\.jsonl line 2: session_id: Field required"),
        ({"session_id": "x", "turns": []}, r"line 2: turns: List should have at least 1 item"),
        ({"session_id": 5, "turns": []}, r"line 2: session_id: Input should be a valid string"),
        ([], r"line 2: Input should be a valid dictionary"),
        (_with(prompt=None), r"line 2: turns\.0\.prompt: Input should be a valid string"),
        (_with(response=""), r"line 2: turns\.0\.response: String should have at least 1 character"),
        (_with(type="other"), r"line 2: turns\.0\.type: Input should be 'main' or 'side'"),
        (_with(trainable="yes"), r"line 2: turns\.0\.trainable: Input should be a valid boolean"),
        (_with(trainble=True), r"line 2: turns\.0\.trainble: Extra inputs are not permitted"),
        (_with(type="side", trainable=True), r"line 2: turns\.0: .*a side turn cannot be trained"),
        (
            {**DOCUMENTED, "turns": [{"prompt": "p", "response": "r"}]},
            r"line 2: session_id: .* is already used in .* line 1",
        ),
    ],
)
def test_an_invalid_line_is_reported_and_nothing_is_imported(
    store: RolloutStore, load: Import, bad: Any, message: str
) -> None:
    with pytest.raises(StoreError, match=message):
        load(DOCUMENTED, bad)
    assert store.status.counts()["turns"] == {} and store.sessions.get("user_session_abc123") is None


def test_a_file_without_conversations_is_rejected(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path)
    file = tmp_path / "talks.jsonl"
    file.write_text(json.dumps(DOCUMENTED) + "\n{half a line")
    with pytest.raises(StoreError, match=r"talks\.jsonl line 2: not valid JSON"):
        import_conversations(store, file, MODEL)
    with pytest.raises(StoreError, match="cannot read"):
        import_conversations(store, tmp_path / "missing.json", MODEL)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"contains no \.json or \.jsonl file"):
        import_conversations(store, tmp_path / "empty", MODEL)
    with pytest.raises(ConfigError, match="is not a model"):
        import_conversations(store, file, tmp_path)
    store.close()
