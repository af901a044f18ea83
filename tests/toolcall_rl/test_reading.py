"""Tests parsing of turns, in all forms that models write."""

from __future__ import annotations

import pytest

from slime.agents.python_tool import PYTHON
from slime.agents.tool_calls import CallError
from toolcall_rl.reading import Neither, ReToolFormat, answer_in, spoken

FORMAT = ReToolFormat(PYTHON.name)
ANSWER = "Answer: \\boxed{5}"
PRETTY = """<tool_call>
{
  "name": "code_interpreter",
  "arguments": {
    "code": "x = 2
print(x)"
  }
}
</tool_call>"""


def code_of(text: str) -> list[str]:
    return [str(call.arguments["code"]) for call in FORMAT.calls(text, [PYTHON])]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('<tool_call>{"name": "code_interpreter", "arguments": {"code": "1+1"}}</tool_call>', ["1+1"]),
        (PRETTY, ["x = 2\nprint(x)"]),
        (PRETTY * 2, ["x = 2\nprint(x)"] * 2),
        ("so <code>\nprint(1)\n</code>", ["print(1)"]),
        ("<code>\n```python\nprint(1)\n```\n</code>", ["print(1)"]),
        ("```python\nprint('<a>')\n```", ["print('<a>')"]),
        ("```py\nprint(1)\n```\nand\n```python\nprint(2)\n```", ["print(1)", "print(2)"]),
        ("<think>\n```python\nprint(0)\n```\n</think>\n<code>1</code>", ["1"]),
        (ANSWER, []),
        ("It is \\boxed{\\frac{1}{2}}.", []),
    ],
)
def test_calls_are_parsed_in_each_format(text: str, code: list[str]) -> None:
    assert code_of(text) == code


def test_in_a_turn_with_a_call_and_an_answer_the_call_counts() -> None:
    assert code_of(f"{ANSWER}\n<code>1+1</code>") == ["1+1"]
    assert code_of(PRETTY + ANSWER) == ["x = 2\nprint(x)"]


def test_a_code_fence_next_to_an_answer_is_not_a_call() -> None:
    assert code_of(f"```python\nprint(5)\n```\n{ANSWER}") == []


def test_reasoning_is_neither_call_nor_answer() -> None:
    assert spoken("<think>a</think>b") == "b" and spoken("a</think>b") == "b"
    assert spoken(f"<think>{ANSWER}") == ""
    with pytest.raises(Neither):
        FORMAT.calls(f"<think>{ANSWER} </think> I do not know", [PYTHON])


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("I wonder.", "Call a tool within <tool_call></tool_call>, or end with"),
        ("", "neither"),
        ("<code>print(1)", "does not end with </code>"),
        ('<tool_call>{"name": "python", "arguments": {}}</tool_call>', "no tool 'python'"),
        ("<tool_call>print(1)</tool_call>", "not JSON"),
    ],
)
def test_an_invalid_turn_gets_an_error_message(text: str, complaint: str) -> None:
    with pytest.raises(CallError, match=complaint):
        FORMAT.calls(text, [PYTHON])


def test_without_an_interpreter_code_is_not_a_call() -> None:
    assert ReToolFormat(None).calls(f"<code>1</code> {ANSWER}", []) == ()
    with pytest.raises(Neither):
        ReToolFormat(None).calls("<code>1</code>", [])


def test_without_a_tool_role_results_are_shown_in_interpreter_tags() -> None:
    assert FORMAT.shown("5") == [{"role": "tool", "content": "5"}]
    plain = ReToolFormat(PYTHON.name, tool_role=False)
    assert plain.shown("5") == [{"role": "user", "content": "<interpreter>\n5\n</interpreter>"}]
    [told] = plain.complaint(CallError("it is no JSON"))
    assert told == {"role": "user", "content": "<interpreter>\nError: it is no JSON\n</interpreter>"}


def test_the_last_boxed_expression_of_a_turn_is_its_answer() -> None:
    assert answer_in("\\boxed{1} no, \\boxed{\\frac{1}{2}}") == "\\frac{1}{2}" and answer_in("7") is None
