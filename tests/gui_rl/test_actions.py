"""Parsing turns to actions: both formats, coordinates, rejections; no text is run."""

from __future__ import annotations

import pytest

from gui_rl.episode.pyautogui_text import MOST_CODE
from gui_rl.episode.reading import MOST_ACTIONS, GuiFormat, actions_of, code_in
from gui_rl.screens.actions import (
    Click,
    Coordinates,
    Drag,
    Finish,
    GuiAction,
    Move,
    Point,
    Press,
    Scroll,
    Tag,
    Type,
    Wait,
    resolved,
)
from slime.agents.tool_calls import CallError

UNIT = Coordinates(True, 1280, 800)
FORMAT = GuiFormat(UNIT)


def actions(text: str, unit: Coordinates = UNIT) -> list[GuiAction]:
    return actions_of(GuiFormat(unit).calls(text, ()), unit)


def call(arguments: str) -> str:
    return f'<tool_call>{{"name": "computer_use", "arguments": {arguments}}}</tool_call>'


def middle(x: int, y: int) -> Point:
    return Point((x + 0.5) / 1000, (y + 0.5) / 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pyautogui.click(500, 20)", [Click(middle(500, 20))]),
        ("pyautogui.click(x=500, y=20, clicks=2, button='right')", [Click(middle(500, 20), "right", 2)]),
        ("pyautogui.click()", [Click(None)]),
        ("doubleClick(1, 2)", None),
        ("pyautogui.doubleClick(1, 2)", [Click(middle(1, 2), count=2)]),
        ("pyautogui.tripleClick(1, 2)", [Click(middle(1, 2), count=3)]),
        (
            "pyautogui.moveTo(1, 2)\npyautogui.dragTo(3, 4, duration=0.5, button='left')",
            [Move(middle(1, 2)), Drag(middle(3, 4))],
        ),
        ("pyautogui.write('Zoë 😀\\nx', interval=0.1)", [Type("Zoë 😀\nx")]),
        ('pyautogui.typewrite(message="it\'s")', [Type("it's")]),
        ("pyautogui.press('enter', presses=3)", [Press(("Enter",), 3)]),
        ("pyautogui.hotkey('ctrl', 'a')", [Press(("Control", "a"))]),
        ("pyautogui.scroll(-300, 10, 10)", [Scroll(up=-300, at=middle(10, 10))]),
        ("pyautogui.hscroll(50)", [Scroll(left=-50)]),
        ("time.sleep(2)", [Wait(2)]),
        ("I am done.\nDONE", [Finish(True)]),
        (
            "```python\nimport pyautogui\npyautogui.click(1, 2); pyautogui.write('a')\n```",
            [Click(middle(1, 2)), Type("a")],
        ),
        ("<think>pyautogui.click(9, 9)</think>FAIL", [Finish(False)]),
    ],
)
def test_lines_of_pyautogui_are_parsed_without_running_them(
    text: str, expected: list[GuiAction] | None
) -> None:
    if expected is None:
        with pytest.raises(CallError, match="there is no action"):
            actions(text)
    else:
        assert actions(text) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"action": "left_click", "coordinate": [500, 20]}', Click(middle(500, 20))),
        ('{"action": "right_click"}', Click(None, "right")),
        ('{"action": "triple_click", "coordinate": [1, 2]}', Click(middle(1, 2), count=3)),
        ('{"action": "mouse_move", "coordinate": [1, 2]}', Move(middle(1, 2))),
        (
            '{"action": "left_click_drag", "start_coordinate": [1, 2], "coordinate": [3, 4]}',
            Drag(middle(3, 4), middle(1, 2)),
        ),
        ('{"action": "type", "text": "héllo\\n"}', Type("héllo\n")),
        ('{"action": "key", "keys": ["ctrl", "c"]}', Press(("Control", "c"))),
        ('{"action": "scroll", "pixels": -200, "coordinate": [5, 5]}', Scroll(up=-200, at=middle(5, 5))),
        ('{"action": "hscroll", "pixels": 100}', Scroll(left=-100)),
        ('{"action": "wait", "time": 3}', Wait(3)),
        ('{"action": "terminate", "status": "failure"}', Finish(False)),
    ],
)  # fmt: skip
def test_calls_of_computer_use_are_parsed_on_one_and_several_lines(
    arguments: str, expected: GuiAction
) -> None:
    assert actions(f"Action: go on.\n{call(arguments)}") == [expected]
    assert actions(call(arguments).replace("<tool_call>", "<tool_call>\n").replace("</", "\n</")) == [
        expected
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("I would click Save.", "there is no action"),
        ("pyautogui.click(1000, 2)", "is not a place on a screen of 1000 x 1000"),
        ("pyautogui.click(-1, 2)", "only numbers|not a place"),
        ("pyautogui.click(True, 2)", "not a place"),
        ("pyautogui.click(1)", "not a place"),
        ("pyautogui.click(x, y)", "plain numbers and texts"),
        ("pyautogui.click(*[1, 2])", "plain numbers and texts"),
        ("pyautogui.write(open('/etc/passwd').read())", "plain numbers and texts"),
        ("```python\n__import__('os').system('touch /tmp/x')\n```", "only functions of pyautogui"),
        ("```python\nos.system('true')\n```", "only functions of pyautogui"),
        ("```python\nfor i in range(9): pyautogui.click(1, 2)\n```", "only calls of pyautogui"),
        ("```python\nx = 1\n```", "only calls of pyautogui"),
        ("```python\nimport os\n```", "does nothing"),
        ("pyautogui.screenshot()", "no function screenshot"),
        ("pyautogui.press('any')", "no key 'any'"),
        ("pyautogui.click(1, 2", "cannot be read"),
        ("```python\n" + "(" * 5000 + "\n```", "cannot be read"),
        ("```python\n" + "#" * (MOST_CODE + 1) + "\n```", "longer than"),
        ("pyautogui.click(1, 2)\n" * (MOST_ACTIONS + 1), "at most 8 actions"),
        ("pyautogui.scroll(float('inf'))", "plain numbers"),
        (call('{"action": "left_click", "coordinate": [1]}'), "needs coordinate"),
        (call('{"action": "left_click", "coordinate": "1,2"}'), "must be of type array"),
        (call('{"action": "swipe"}'), "the argument action must be one of 'key'"),
        (call('{"action": "terminate"}'), "needs status"),
        (call('{"action": "type"}'), "must be a text"),
        (call('{"action": "key", "keys": []}'), "key needs keys"),
        (call('{"action": "scroll", "pixels": 1e9}'), "at most 10000"),
        ("<tool_call>{", "does not end with"),
    ],
)  # fmt: skip
def test_impossible_actions_are_rejected_with_a_message_for_the_model(text: str, complaint: str) -> None:
    with pytest.raises(CallError, match=complaint) as raised:
        actions(text)
    [message] = FORMAT.complaint(raised.value)
    assert message["role"] == "user" and str(message["content"]).startswith("Error: ")


def test_coordinates_in_pixels_reach_the_same_point() -> None:
    absolute = Coordinates(False, 1280, 800)
    [relative], [pixels] = (
        actions("pyautogui.click(500, 500)"),
        actions("pyautogui.click(640, 400)", absolute),
    )
    assert isinstance(relative, Click) and relative.at and isinstance(pixels, Click) and pixels.at
    assert abs(relative.at.x - pixels.at.x) < 1e-3 and abs(relative.at.y - pixels.at.y) < 2e-3
    assert UNIT.written(640, 400) == (500, 500) and absolute.written(640.4, 400.9) == (640, 400)
    with pytest.raises(CallError, match="1280 x 800"):
        actions("pyautogui.click(1280, 2)", absolute)


def test_text_around_the_code_is_ignored() -> None:
    assert code_in("First I click.\npyautogui.click(1, 2)\nThen I am DONE") == "pyautogui.click(1, 2)"


def test_tags_refer_to_the_elements_that_were_shown() -> None:
    tagged = Coordinates(tags=True)
    [click, _] = actions("pyautogui.click(tag_1)\nDONE", tagged)
    assert click == Click(Tag(1)) and resolved(click, [Point(0, 0), Point(0.5, 0.2)]) == Click(
        Point(0.5, 0.2)
    )
    [move, drag] = actions("pyautogui.moveTo(tag_0)\npyautogui.dragTo(tag_1)", tagged)
    assert resolved(move, [Point(0, 1)]) == Move(Point(0, 1)) and drag == Drag(Tag(1))
    assert resolved(Finish(True), []) == Finish(True)
    with pytest.raises(CallError, match="no tag_1 on the screen"):
        resolved(click, [Point(0, 0)])
    with pytest.raises(CallError, match="no tags here"):
        actions("pyautogui.click(tag_1)")
    with pytest.raises(CallError, match="not a place"):
        actions("pyautogui.click(tag_1, 5)", tagged)
