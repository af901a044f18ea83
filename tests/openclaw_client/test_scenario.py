"""The end-to-end test itself must notice what it is there to notice."""

from __future__ import annotations

from types import SimpleNamespace

from e2e.scenario import Expected, mismatches
from e2e.scripted_engine import answer_to


def _turn(answer, next_state):
    return SimpleNamespace(response_message=answer, next_state=next_state)


def _expected():
    expected = Expected()
    for text in ("hello", "RUN echo one", "Thanks."):
        expected.said(text)
    return expected


def _stored():
    call = {"tool_calls": [{"function": {"name": "exec"}}]}
    return [
        _turn({"content": "You said: hello"}, [{"role": "user", "content": "RUN echo one"}]),
        _turn(call, [{"role": "tool", "content": "one"}]),
        _turn(
            {"content": "The tool answered: one"},
            [{"role": "user", "content": [{"type": "text", "text": "Thanks."}]}],
        ),
        _turn({"content": "You said: Thanks."}, None),
    ]


def test_what_is_right_has_no_mismatch():
    assert mismatches("a", _expected(), _stored()) == []


def test_a_lost_turn_a_wrong_next_state_and_leaked_context_are_found():
    assert "3 main turns are stored, 4 calls" in mismatches("a", _expected(), _stored()[:3])[0]
    stored = _stored()
    stored[0].next_state = None
    assert "next state None" in mismatches("a", _expected(), stored)[0]
    stored = _stored()
    stored[1].next_state = [{"role": "tool", "content": "one <<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>"}]
    assert "internal context" in mismatches("a", _expected(), stored)[0]
    stored = _stored()
    stored[3].next_state = [{"role": "user", "content": "of somebody else"}]
    assert "of somebody else" in mismatches("a", _expected(), stored)[0]


def test_the_script_answers_the_last_message_that_a_person_or_tool_wrote():
    def prompt(*messages):
        return (
            "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
            + "<|im_start|>assistant\n"
        )

    context = ("user", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nx\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>")
    stamped = ("user", "[Sat 2026-11-21 02:27 UTC] RUN echo hi")
    assert '"command": "echo hi"' in answer_to(prompt(stamped, context))
    result = ("user", "<tool_response>\nhi\n</tool_response>")
    assert answer_to(prompt(stamped, result, context)) == "The tool answered: hi"
    assert answer_to(prompt(("user", "hello"), context)) == "You said: hello"
