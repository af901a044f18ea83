"""Logs of other programs become turns: requests, answers, and next states."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.errors import StoreError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.judge.questions import question_about
from openclaw.store import RolloutStore
from openclaw.store.history.any_file import Import
from openclaw.store.history.past import PastTurn
from openclaw.store.history.reading import read_histories
from openclaw.types import NewTurn, TurnState
from tests import MODEL
from tests.fakes.history_logs import (
    ClaudeLog,
    hermes_database,
    openclaw_answered,
    openclaw_lines,
    openclaw_returned,
    openclaw_said,
    text,
    use,
    write_lines,
)

Json = dict[str, Any]


def _turns(path: Path) -> list[PastTurn]:
    (session,) = read_histories(path).sessions
    return session.turns


def _texts(turns: list[PastTurn]) -> list[tuple[str, str, list[str]]]:
    """Returns (last message before, answer, next state) of each."""
    return [
        (turn.messages[-1]["content"], turn.answer["content"], [one["content"] for one in turn.next_state])
        for turn in turns
    ]


def _openclaw(file: Path, *more: Json) -> Path:
    talk = [
        openclaw_said("What is in a.txt?"),
        openclaw_answered("", ("read", {"path": "a.txt"})),
        openclaw_returned("read", "milk"),
        openclaw_answered("**Milk**."),
        openclaw_said("No bold, please."),
        openclaw_answered("Milk."),
    ]
    return write_lines(file, openclaw_lines(*talk, *more))


def test_an_openclaw_session_becomes_turns_with_calls_and_next_states(tmp_path: Path) -> None:
    turns = _turns(_openclaw(tmp_path / "s.jsonl"))
    assert [turn.answer["content"] for turn in turns] == ["", "**Milk**.", "Milk."]
    assert [[one["content"] for one in turn.next_state] for turn in turns] == [
        ["milk"],
        ["No bold, please."],
        [],
    ]
    (call,) = turns[0].answer["tool_calls"]
    assert call["function"] == {"name": "read", "arguments": '{"path": "a.txt"}'}
    assert turns[0].next_state[0]["tool_call_id"] == call["id"]


def test_truncated_answers_and_openclaws_housekeeping_are_skipped_and_counted(tmp_path: Path) -> None:
    beat = openclaw_said("Read HEARTBEAT.md if it exists")
    cut = openclaw_answered("Mil", stopReason="aborted")
    file = _openclaw(
        tmp_path / "s.jsonl", openclaw_said("And b.txt?"), cut, beat, openclaw_answered("HEARTBEAT_OK")
    )
    (session,) = read_histories(file).sessions
    assert len(session.turns) == 3 and session.left_out == {"context_only": 1, "side": 1}


def test_a_summary_replaces_the_messages_it_summarises(tmp_path: Path) -> None:
    summary = {
        "type": "compaction",
        "summary": "They read a.txt.",
        "firstKeptEntryId": "e4",
        "tokensBefore": 9,
    }
    turns = _turns(
        _openclaw(tmp_path / "s.jsonl", summary, openclaw_said("Thanks!"), openclaw_answered("Welcome."))
    )
    words = [message["content"] for message in turns[-1].messages]
    assert words[0] == "They read a.txt." and words[-1].endswith("Thanks!") and len(words) == 4


def test_the_parts_of_claudes_answer_become_one_turn_with_all_results(tmp_path: Path) -> None:
    log = ClaudeLog()
    log.says("Caveat: local commands", isMeta=True)
    log.says("<command-name>/clear</command-name>")
    log.says("Compare a and b. <system-reminder>Be brief.</system-reminder>")
    first = log.answers("m1", text("Reading."), use("t1", "Read", path="a"))
    second = log.answers("m1", use("t2", "Read", path="b"))
    log.returns("t1", "1", parent=first)
    log.returns("t2", "2", parent=second)
    log.answers("m2", text("They differ."))
    log.says("hidden", isSidechain=True)
    log.answers("s1", text("of a subagent"), isSidechain=True)
    log.says("Thanks!", parent="u8")
    (session,) = read_histories(write_lines(tmp_path / "s.jsonl", log.lines)).sessions
    calls, answer = session.turns
    assert [call["function"]["name"] for call in calls.answer["tool_calls"]] == ["Read", "Read"]
    assert sorted(one["content"] for one in calls.next_state) == ["1", "2"]
    assert [one["content"] for one in calls.messages] == ["Compare a and b."]
    assert (answer.answer["content"], answer.next_state[0]["content"]) == ("They differ.", "Thanks!")
    assert len(answer.messages) == 4 and session.left_out == {"side": 1}


def test_each_branch_of_an_edited_question_is_imported_once(tmp_path: Path) -> None:
    log = ClaudeLog()
    ask = log.says("Two?")
    log.answers("m1", text("2"))
    log.says("In words.")
    log.answers("m2", text("Two"))
    log.says("As a list.", parent="u2")
    log.answers("m3", text("- 2"))
    turns = _turns(write_lines(tmp_path / "s.jsonl", log.lines))
    assert ask == "u1" and sorted(_texts(turns)) == [
        ("As a list.", "- 2", []),
        ("In words.", "Two", []),
        ("Two?", "2", ["As a list."]),
    ]


def _hermes(file: Path) -> Path:
    call = json.dumps(
        [{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": '{"cmd": "ls"}'}}]
    )
    return hermes_database(
        file,
        ("user", "Which files?", None, None, 1),
        ("assistant", None, None, call, 1),
        ("tool", "a.txt", "c1", None, 1),
        ("assistant", "taken back", None, None, 0),
        ("assistant", "a.txt", None, None, 1),
        ("user", '\0json:[{"type": "text", "text": "Too short."}]', None, None, 1),
        ("assistant", "There is one file, a.txt.", None, None, 1),
    )


def test_sessions_of_hermes_database_are_imported_with_their_system_prompt(tmp_path: Path) -> None:
    found = read_histories(_hermes(tmp_path / "state.db"))
    talk, cron = found.sessions
    assert talk.turns[0].messages[0] == {"role": "system", "content": "You are Hermes."}
    assert [turn.answer["content"] for turn in talk.turns] == ["", "a.txt", "There is one file, a.txt."]
    assert talk.turns[1].next_state == [{"role": "user", "content": "Too short."}]
    assert (cron.turns, cron.left_out) == ([], {"side": 1})


def test_an_exported_session_of_hermes_is_imported(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]
    file = write_lines(tmp_path / "e.jsonl", [{"id": "h-9", "source": "cli", "messages": messages}])
    assert _texts(_turns(file)) == [("Hi", "Hello", ["Bye"])]


def _atif(file: Path) -> Path:
    steps: list[Json] = [
        {"step_id": 1, "source": "system", "message": "Use the shell."},
        {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Fix it."}]},
        {"step_id": 3, "source": "agent", "message": "From before.", "is_copied_context": True},
        {
            "step_id": 4, "source": "agent", "message": "", "reasoning_content": "hm",
            "tool_calls": [{"tool_call_id": "c", "function_name": "bash", "arguments": {"cmd": "make"}}],
            "observation": {"results": [{"source_call_id": "c", "content": "error: 2"}]},
        },
        {"step_id": 5, "source": "agent", "message": "Done.", "observation": {"results": [{"content": "bell"}]}},
    ]  # fmt: skip
    document = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": steps}
    file.write_text(json.dumps(document, indent=2))
    return file


def test_another_programs_trajectory_becomes_turns(tmp_path: Path) -> None:
    (session,) = read_histories(_atif(tmp_path / "trajectory.json")).sessions
    assert _texts(session.turns) == [("From before.", "", ["error: 2"]), ("error: 2", "Done.", ["bell"])]
    assert session.left_out == {"context_only": 1} and session.id == "trajectory"


def test_all_histories_of_a_folder_are_imported_and_other_files_counted(tmp_path: Path) -> None:
    _openclaw(tmp_path / "agents" / "main" / "s.jsonl")
    _hermes(tmp_path / "state.db")
    (tmp_path / "agents" / "sessions.json").write_text('{"agent:main": {"sessionId": "oc-1"}}')
    (tmp_path / "broken.jsonl").write_text("{\n{\n")
    found = read_histories(tmp_path)
    assert found.files == {"openclaw": 1, "hermes": 1, "unknown": 2} and len(found.sessions) == 3


def test_an_incomplete_last_line_is_skipped(tmp_path: Path) -> None:
    file = _openclaw(tmp_path / "s.jsonl")
    with file.open("a") as opened:
        opened.write('{"type": "message", "id": "e6", "par')
    assert len(_turns(file)) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "unknown format; supported: an exported store"),
        ('{"a": 1}\n{\n{}\n', "line 2: not valid JSON"),
        ("SQLite format 3\0", "is not a Hermes database"),
    ],
)
def test_a_file_that_is_not_a_history_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(StoreError, match=message):
        read_histories(tmp_path / "x.json")


@pytest.mark.every_database
def test_a_history_is_judged_once_and_only_new_turns_of_a_grown_log_are_imported(
    store: RolloutStore, tmp_path: Path
) -> None:
    file = _openclaw(tmp_path / "s.jsonl")
    wanted = Import(str(file), MODEL, person="ann")
    first = wanted.into(lambda: store)
    assert {name: first[name] for name in ("sessions", "turns", "answered", "imported", "known")} == {
        "sessions": 1, "turns": 3, "answered": 2, "imported": 1, "known": 0,
    }  # fmt: skip
    assert wanted.into(lambda: store)["known"] == 3
    _openclaw(tmp_path / "s.jsonl", openclaw_said("Thank you."))
    again = wanted.into(lambda: store)
    assert (again["known"], again["answered"], store.status.counts()["turns"]) == (2, 1, {"answered": 3})
    turns = store.judgements.claim("w", 9, 60)
    assert {
        (turn.source, turn.person, turn.completion_log_probs, tuple(turn.version_spans)) for turn in turns
    } == {("import", "ann", None, ())}
    assert question_about(turns[1]).next_text == "No bold, please."


def test_an_answer_with_calls_has_the_ids_of_the_models_template(store: RolloutStore, tmp_path: Path) -> None:
    Import(str(_openclaw(tmp_path / "s.jsonl")), MODEL).into(lambda: store)
    tokenizer = Tokenizer(MODEL)
    called, told, _ = store.turns.of_sessions(["oc-1"], 9)[0]["oc-1"]
    written = tokenizer.decode(called.completion_ids)
    assert written.startswith("<tool_call>") and written.endswith("<|im_end|>") and '"a.txt"' in written
    assert tokenizer.decode(told.completion_ids) == "**Milk**.<|im_end|>"
    assert "<tool_response>\nmilk" in tokenizer.decode(told.prompt_ids)


def test_turns_recorded_by_the_gateway_are_not_imported_again(
    store: RolloutStore, tmp_path: Path, make_turn: Callable[..., NewTurn]
) -> None:
    wanted = Import(str(_openclaw(tmp_path / "s.jsonl")), MODEL)
    other = RolloutStore(tmp_path / "other")
    wanted.into(lambda: other)
    (known, *_) = other.turns.of_sessions(["oc-1"], 9)[0]["oc-1"]
    other.close()
    store.turns.record(make_turn(session_id="oc-1", transcript_digest=known.transcript_digest))
    assert wanted.into(lambda: store)["known"] == 1
    assert store.status.counts()["turns"] == {"captured": 1, "answered": 1, "imported": 1}


def test_turns_beyond_the_context_are_skipped_and_counted(store: RolloutStore, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for file in MODEL.iterdir():
        if file.suffix in (".json", ".jinja") and "index" not in file.name:
            (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 40}))
    counts = Import(str(_openclaw(tmp_path / "s.jsonl")), tmp_path / "model").into(lambda: store)
    assert counts["left_out"]["context_length_exceeded"] == 3 - counts["answered"] - counts["imported"] > 0
    assert TurnState.UNTRAINABLE not in store.status.counts()["turns"]
