"""A folder in MetaClaw-Bench's format: parsed, played, scored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw_test.evaluation.metaclaw import workplace
from openclaw_test.evaluation.metaclaw.playing import play, use
from openclaw_test.evaluation.metaclaw.reading import BadBench, Choice, Update, read_bench
from openclaw_test.evaluation.metaclaw.scoring import chosen_in, feedback_of, score_choice, summary
from openclaw_test.evaluation.metaclaw.workplace import Opened, Unboxed, change, places
from openclaw_test.people.agents import TooLong
from slime.errors import ConfigError

FOLDER = Path(__file__).parent / "metaclaw_bench"
Message = dict[str, Any]


class Scripted:
    """Makes given tool calls and replies in turn; records the requests."""

    def __init__(self, *replies: Message | str) -> None:
        self.replies = list(replies)
        self.sent: list[list[Message]] = []
        self.ended: list[str] = []

    def reply(self, session: str, messages: list[Message], tools: list[Message] | None) -> Message:
        self.sent.append(json.loads(json.dumps(messages)))
        found = self.replies.pop(0)
        if found == "too long":
            raise TooLong("no room")
        return {"role": "assistant", "content": found} if isinstance(found, str) else found

    def end(self, session: str) -> None:
        self.ended.append(session)


def call(name: str, **arguments: str) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


@pytest.fixture
def unboxed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a machine without sandboxes."""

    def none() -> None:
        raise ConfigError("bubblewrap is missing")

    monkeypatch.setattr(workplace, "require_sandbox", none)


def test_a_folder_is_read_from_any_root_path() -> None:
    bench = read_bench(FOLDER)
    assert (bench.name, [day.id for day in bench.days]) == ("garden", ["day01", "day02"])
    first = bench.days[0]
    assert first.rounds[1].check == Choice(frozenset("ABCD"), frozenset("AD"))
    assert [one["content"] for one in first.history] == [
        "Good morning, the beds are written down in day01.",
        "Good morning. I have seen the file.",
    ]
    assert bench.days[1].history == () and bench.days[1].rounds[0].updates[0].source == "bed 3: rosemary\n"


@pytest.mark.parametrize(
    ("file", "edit", "named"),
    [
        ("all_tests.json", lambda found: {}, "non-empty list of days"),
        ("all_tests.json", lambda found: {**found, "eval_dir": "gone"}, "no folder is there"),
        ("eval/day01/questions.json", lambda found: {"rounds": []}, "has no rounds"),
        ("eval/day01/questions.json", lambda found: {"rounds": [{"type": "file_check"}]}, "no question"),
        (
            "eval/day01/questions.json",
            lambda found: {"rounds": [{**found["rounds"][0], "type": "essay"}]},
            "'essay'",
        ),
        (
            "eval/day02/questions.json",
            lambda found: {"rounds": [{**found["rounds"][0], "update": [{"type": "workspace"}]}]},
            "a path",
        ),
    ],
)
def test_problems_of_a_folder_are_reported(
    tmp_path: Path, file: str, edit: Callable[[Any], Any], named: str
) -> None:
    folder = tmp_path / "bench"
    shutil.copytree(FOLDER, folder)
    path = folder / file
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(BadBench, match=named):
        read_bench(folder)


@pytest.mark.parametrize(
    ("answer", "score", "exact", "iou"),
    [
        (r"I say \bbox{A,D}", 1.0, 1.0, 1.0),
        (r"first \bbox{B}, no: \boxed{d, a}", 1.0, 1.0, 1.0),
        (r"\bbox{A}", 0.75, 0.0, 0.5),
        (r"\bbox{B,C}", 0.0, 0.0, 0.0),
        ("A and D", 0.0, 0.0, 0.0),
    ],
)
def test_choices_are_scored_by_wrong_and_missing_letters(
    answer: str, score: float, exact: float, iou: float
) -> None:
    found = score_choice(Choice(frozenset("ABCD"), frozenset("AD")), answer)
    assert (found.score, found.exact, found.iou) == (score, exact, iou)


def test_feedback_names_each_letter_that_was_wrong() -> None:
    one = read_bench(FOLDER).days[0].rounds[1]
    check = one.check
    assert isinstance(check, Choice)
    said = feedback_of(one, score_choice(check, r"\bbox{A,C}"))
    assert "D should have been chosen: further keys do no harm" in said
    assert "C should not have been chosen: its key is another one" in said
    assert feedback_of(one, score_choice(check, r"\bbox{A,D}")) == "Yes, both have a name."
    assert r"no \bbox" in feedback_of(one, score_choice(check, "both"))
    assert chosen_in("nothing") is None


def test_a_day_is_played_in_the_sandbox_with_tools() -> None:
    """The check passes, the model never sees its script, and feedback precedes the next question."""
    bench = read_bench(FOLDER)
    plants = '[{"name": "thyme"}, {"name": "sage"}]'
    model = Scripted(
        call("exec", command="ls . day01 && cat day01/beds.txt"),
        call("write", path="day01/plants.json", content=plants),
        "done",
        r"\bbox{A}",
        "I see.",
    )
    [played] = play(bench, bench.days[:1], model, places(False), True, "t")
    assert [one.score for one in played.scores] == [1.0, 0.75] and played.calls == 2
    listing = next(one["content"] for one in model.sent[1] if one["role"] == "tool")
    assert "thyme" in listing and "scripts" not in listing and "day02" not in listing
    assert "You keep the lists of a garden." in model.sent[0][0]["content"]
    assert model.sent[0][1]["content"].startswith("Good morning")
    assert model.sent[3][-1]["content"].startswith(
        "[Previous Feedback] The list is as I need it.\n\nWhich of"
    )
    assert "D should have been chosen" in model.sent[4][-1]["content"]
    assert model.ended == ["t-day01"]
    assert summary(played.scores)["multi_choice"] == {"rounds": 1, "score": 0.75, "exact": 0.0, "iou": 0.5}


def test_a_file_added_before_a_round_is_in_the_workspace(unboxed: None) -> None:
    bench = read_bench(FOLDER)
    model = Scripted(
        call(
            "exec", command="""sed -i 's/]/, {"name": "rosemary"}]/' day02/plants.json; cat day02/more.txt"""
        ),
        "added",
        r"\bbox{B}",
        "Good.",
    )
    [played] = play(bench, bench.days[1:], model, places(True), True, "t")
    assert [one.score for one in played.scores] == [1.0, 1.0]
    assert "rosemary" in str(model.sent[1])


def test_without_a_sandbox_no_command_runs_unless_that_is_allowed(unboxed: None) -> None:
    with pytest.raises(BadBench, match="--allow-commands"):
        places(False)
    bench = read_bench(FOLDER)
    with places(True)(bench, bench.days[0]) as place:
        assert isinstance(place, Unboxed) and place.run("exit 3") == (3, "")
        with pytest.raises(ValueError, match="is outside"):
            place.read("../../../etc/passwd")
    with pytest.raises(OSError):
        place.read("AGENTS.md")


def test_a_conversation_beyond_the_context_restarts_with_the_question() -> None:
    bench = read_bench(FOLDER)
    model = Scripted("no file", "too long", r"\bbox{A,D}", "Fine.")
    [played] = play(bench, bench.days[:1], model, places(False), False, "t")
    assert [one.score for one in played.scores] == [0.0, 1.0] and played.shortened == 1
    assert [one["role"] for one in model.sent[2]] == ["system", "user"]


@pytest.mark.parametrize(
    ("action", "param", "text"),
    [
        ("new", None, "x\n"),
        ("append", None, "one\ntwo\nthree\nx\n"),
        ("insert", {"after": 1}, "one\nx\ntwo\nthree\n"),
        ("delete", {"lines": [1, "2:3"]}, "two\n"),
    ],
)
def test_files_are_changed_before_a_round(tmp_path: Path, action: str, param: Any, text: str) -> None:
    place = Unboxed(tmp_path)
    place.write("a/b.txt", "one\ntwo\nthree\n")
    change(place, Update("workspace", action, "a/b.txt", "x\n", param))
    assert place.read("a/b.txt") == text
    with pytest.raises(BadBench, match="cannot be made"):
        change(place, Update("workspace", "new", "../c.txt", "x", None))


def test_a_tool_error_is_one_line_for_the_model() -> None:
    bench = read_bench(FOLDER)
    with Opened(bench, bench.days[0], boxed=True) as place:
        for name, arguments in (("read", '{"path": "gone"}'), ("read", "{"), ("exec", "[]"), ("fly", "{}")):
            assert use(place, name, arguments).startswith("error: ")
        assert "(exit status 7)" in use(place, "exec", '{"command": "exit 7"}')
