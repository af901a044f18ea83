"""Texts that programs write in the role of the user are not the person's words, and people's words stay theirs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openclaw.clients.program_text import TEMPLATE_SESSIONS, RepeatedTexts
from openclaw.clients.registry import CLIENTS
from openclaw.sessions.transcript import next_state
from tests import ROOT
from tests.fakes.running_gateway import RunningGateway

PROGRAM_TEXTS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "program_texts.jsonl").read_text().splitlines()
]
"""Structures of the templates of twelve clients, with our own words in between."""
NEWEST = [
    "[System: Your previous response was truncated. Continue exactly where you left off.]",
    "[System: You are a worker. A plain-text reply is NOT a result.]",
    "You just executed tool calls but returned an empty response. Please process the tool results above.",
    "[Your active task list was preserved across context compression]\n- [>] 1. Fix the sum (in_progress)",
    "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below.",
    "Please provide the final result now and stop calling tools.",
    "[Message from parent agent]: Look at the tests.",
    "I ran the following shell command:\n```sh\npytest\n```",
    "Host-confirmed user answer:\n{}",
    "The session's working directory has changed from /a to /b via /cd.",
    "User launched a background fork via /fork. Directive (truncated): fix it",
    "Recently accessed file (full current content embedded):\n\n## a.py",
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\nx",
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\nx",
    "I am not sharing the full contents of any files with you yet.",
    "I am not sharing any files with you.",
    "I am not sharing any files yet.",
    "I am working with you on code in a git repository.\nHere are summaries of some files present in it.",
    "These files have been *added these files to the chat* so we can see all of their contents.",
    "These are some files we have been discussing that we may want to edit after you answer.",
    "Below here are summaries of other files! Do not change these *read-only* files.",
]
"""Beginnings of texts by Hermes 0.19.0, Qwen Code 0.24.4, pi 1.6.0 and the chat modes of Aider 0.86.2."""
SURROUNDINGS = "\n\n<environment_details>\n# Current Mode\nACT MODE\n</environment_details>"
PEOPLE_IN_WRAPPERS = {
    "[attempt_completion] Result:\nThe user has provided feedback on the results. Consider their input.\n<feedback>\n"
    f"That is wrong, use tabs.\n</feedback>{SURROUNDINGS}": "That is wrong, use tabs.",
    f"[ask_followup_question for 'Which?'] Result:\n<answer>\nthe second one\n</answer>{SURROUNDINGS}": "the second one",
    '{"status":"denied","feedback":"Never delete files."}': "Never delete files.",
    f"Too long!{SURROUNDINGS}": "Too long!",
    "<system-reminder>\nBe good.\n</system-reminder>\nToo long!": "Too long!",
    "<ide_selection>x = 1</ide_selection>\n\nThis is wrong.": "This is wrong.",
    "<user_query>\nThis is wrong.\n</user_query>": "This is wrong.",
    "```a.py\nx\n```\nUse the above code to answer the following question. You should not reference other files.\n\n"
    "Is it wrong?": "Is it wrong?",
    "### Task:\nRespond to the user query using the provided context.\n\n<context>\n<source>x</source>\n</context>\n"
    "That is wrong.": "That is wrong.",
    "New instructions for task continuation:\n<user_message>\nNo, in French.\n</user_message>": "No, in French.",
    "Fix the sum.\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery block must use this format.": "Fix the sum.",
}
PEOPLE = [
    "STOP USING BULLET POINTS NOW",
    "NEVER do that again!",
    "You are a terrible assistant. You MUST stop making lists. This is NOT what I asked for.",
    "Your last response was cut off.",
    "Please continue. But shorter.",
    "Continue where you left off, but slower",
    "[sigh] this is wrong",
    "[1] is wrong, [2] is fine",
    "The user can't log in with this, please fix it",
    "The tool failed? You did not even call it.",
    "<div>hello</div> is what I get, and that is wrong",
    "### wrong again",
    "IMPORTANT: I asked for two sentences.",
    "Note: the title is too long.",
    "Summarize our conversation, please.",
    "You did not use a tool. Why?",
    "I said JSON only. No other text, please.",
    '{"a": 1} is not what I asked for',
    "ok but the previous response was better, and you must not mention the session",
    "System says: no such file. Fix it.",
    "Tool calls are too slow here, just answer.",
    "Ran `pytest` and it failed again.",
    "I ran the following command and it failed: pytest",
    "The previous summary is wrong.",
    "I am not sharing that with you.",
    "Your task was easy and you failed. Do it again, and do NOT apologise.",
]
LISTS = (
    "openclaw-test/openclaw_test/people/everyday_talk.jsonl",
    "openclaw/dreaming/data",
    "openclaw/progress/data",
    "tests/openclaw/judge/data",
    "tests/openclaw/judge/examples",
    "launch/gate_everyday.jsonl",
)


def recorded_lines() -> Iterator[str]:
    """Yields people's messages in the recorded lists."""
    for name in LISTS:
        place = ROOT / name
        for file in sorted(place.rglob("*.jsonl")) if place.is_dir() else [place]:
            for line in file.read_text().splitlines():
                record = json.loads(line)
                if record.get("kind") != "tool":
                    yield from texts_in(record)


def texts_in(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str) and name in ("text", "prompt", "wish", "asked", "question", "said", "content"):
        yield value
    elif isinstance(value, dict) and value.get("role", "user") == "user":
        for key, inner in value.items():
            yield from texts_in(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner, name)


def after_an_answer(text: str) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    return next_state([*messages, {"role": "user", "content": text}], 2)


@pytest.mark.parametrize("half", ["seen", "unseen"])
def test_program_texts_are_not_attributed_to_the_user(half: str) -> None:
    texts = [one for one in PROGRAM_TEXTS if one["half"] == half]
    assert len(texts) == 60 and len({one["client"] for one in texts}) == 12
    for one in texts:
        followed = after_an_answer(one["text"])
        assert not any(message["role"] == "user" for message in followed), one


@pytest.mark.parametrize("text", NEWEST)
def test_program_texts_of_the_newest_clients_are_not_attributed_to_the_user(text: str) -> None:
    assert CLIENTS.read(text)[0] != "person"


def test_tool_results_are_recognised() -> None:
    for text in (
        "[execute_command for 'pytest'] Result:\n1 failed",
        "# 1 SEARCH/REPLACE block failed to match!\n\n",
    ):
        assert after_an_answer(text + SURROUNDINGS) == [{"role": "tool", "content": text.strip()}]


@pytest.mark.parametrize("text", PEOPLE_IN_WRAPPERS)
def test_a_users_words_are_extracted_from_the_clients_wrapper(text: str) -> None:
    assert after_an_answer(text) == [{"role": "user", "content": PEOPLE_IN_WRAPPERS[text]}]


@pytest.mark.parametrize("text", PEOPLE)
def test_shouting_quoting_and_tool_mentions_are_still_user_texts(text: str) -> None:
    assert CLIENTS.read(text) == ("person", text)


def test_every_recorded_user_line_is_attributed_to_the_user() -> None:
    lines = list(dict.fromkeys(recorded_lines()))
    assert len(lines) > 2000
    assert [line for line in lines if CLIENTS.read(line) != ("person", CLIENTS.clean(line))] == []


def test_long_texts_are_parsed_in_linear_time() -> None:
    began = time.monotonic()
    for text in (
        "<a-b>" * 50_000,
        "</a-b>" * 50_000,
        "<user_query>" * 50_000,
        "[a_b for " * 50_000,
        "{" * 10**6 + "}",
    ):
        CLIENTS.read(text)
    assert time.monotonic() - began < 2


def test_a_long_text_shared_by_several_sessions_is_a_template() -> None:
    repeated, long = RepeatedTexts(), [{"role": "user", "content": "Please check the work once more. " * 10}]
    short = [{"role": "user", "content": "That is wrong."}]
    for number in range(TEMPLATE_SESSIONS + 1):
        assert repeated.without("ada", f"s{number}", short) == short
        assert repeated.without("ada", f"s{number}", long) == (long if number < TEMPLATE_SESSIONS - 1 else [])
    assert repeated.without("bob", "s9", long) == long, "another key's sessions do not count"
    assert repeated.without(None, "s9", long) == long
    again = RepeatedTexts()
    assert all(again.without("ada", "one", long) == long for _ in range(5))


def test_feedback_to_aider_is_found_although_files_move_in_its_history(
    gateway: RunningGateway,
) -> None:
    def ask(*messages: tuple[str, str]) -> Any:
        talk: Any = [{"role": role, "content": content} for role, content in messages]
        return gateway.client.chat.completions.create(model="small-qwen3", messages=talk)

    files = ("user", "I have *added these files to the chat* so you can go ahead and edit them.\n\napp.py")
    rules = "\n\n# *SEARCH/REPLACE block* Rules:\n\nEvery block must use this format."
    agreed, question = (
        ("assistant", "Ok, any changes I propose will be to those files."),
        ("user", "Fix the sum."),
    )
    gateway.says("Done.")
    first = ask(files, agreed, ("user", question[1] + rules))
    answer, committed = (
        ("assistant", "Done."),
        ("user", "I committed the changes with git hash 1a2b & commit msg: fix"),
    )
    complaint = ("user", "That is wrong." + rules)
    second = ask(question, answer, committed, ("assistant", "Ok."), files, agreed, complaint)
    assert gateway.turn(second.id).parent_id == gateway.turn(first.id).id
    followed = gateway.wait_for(lambda: gateway.turn(first.id).next_state)
    assert followed == [{"role": "user", "content": "That is wrong."}]


@pytest.mark.parametrize(
    ("header", "value"), [("X-OpenWebUI-Chat-Id", "c1"), ("X-Task-ID", "t1"), ("X-KiloCode-TaskId", "k1")]
)
def test_session_headers_of_clients_are_recognised(header: str, value: str) -> None:
    assert CLIENTS.session({header.lower(): value}, {}) == value


def test_client_housekeeping_is_a_side_turn_but_answers_with_sources_are_not() -> None:
    for text, side in (
        ("### Task:\nGenerate a concise title", True),
        ("### Task:\nRespond to the user query using the provided context", False),
        ("Generate a concise 3-7 word title for this conversation", True),
        ("Provide a concise, 5-word-or-less title for the conversation", True),
        ("Generate a poem", False),
    ):
        assert CLIENTS.is_side([{"role": "user", "content": text}]) == side, text


@pytest.mark.parametrize(
    ("system", "side"),
    [
        ("You are now acting as the managed memory extraction subagent for an AI coding assistant.", True),
        ("You are a general-purpose sub-agent working for a parent agent.", True),
        ("You are performing a managed memory dream, a reflective pass over memory files.", True),
        ("You are an assistant. A subagent can be started with the tool `task`.", False),
        ("You are Qwen Code, a non-interactive CLI agent that may start subagents.", False),
    ],
)
def test_subagents_of_any_client_are_side_turns(system: str, side: bool) -> None:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Go on."}]
    assert CLIENTS.is_side(messages) == side
