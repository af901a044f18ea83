"""Tasks in OSWorld's JSON: parsing, rejections, and scores of final states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gui_rl.check import TASKS, main, task_names
from gui_rl.convert import convert, tasks_of
from gui_rl.scoring.getters import get
from gui_rl.scoring.metrics import score, together
from gui_rl.scoring.task import TaskError, task_from, task_of
from gui_rl.screens.protocol import Tab
from gui_rl.screens.sites import Visit
from slime.agents import Task

LAUNCHES = [
    {"type": "launch", "parameters": {"command": ["google-chrome", "--remote-debugging-port=1337"]}},
    {"type": "launch", "parameters": {"command": ["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]}},
]
TAB = {
    "func": "is_expected_active_tab",
    "result": {"type": "active_tab_info"},
    "expected": {"type": "rule", "rules": {"type": "url", "url": "http://shop.test/cart.html"}},
}


def config(**more: object) -> dict[str, Any]:
    return {"id": "one", "instruction": "do it", "config": LAUNCHES, "evaluator": TAB, **more}


class FakeScreen:
    """Two tabs and some elements."""

    desktop = None

    async def tabs(self) -> list[Tab]:
        return [
            Tab("Shop", "http://www.shop.test/"),
            Tab("Cart", "https://www.shop.test/cart.html?a=1&b=x,y"),
        ]

    async def active(self) -> Tab:
        return (await self.tabs())[-1]

    async def read(self, selector: str, name: str) -> list[Any]:
        return [f"{selector}.{name}"]


async def test_getters_return_tabs_urls_elements_and_page_state() -> None:
    visit = Visit(state={"cart": ["mug"], "coupon": "X"})

    async def got(kind: str, **settings: object) -> Any:
        return await get(FakeScreen(), visit, {"type": kind, **settings})  # type: ignore[arg-type]

    assert await got("active_tab_info") == {
        "title": "Cart",
        "url": "https://www.shop.test/cart.html?a=1&b=x,y",
    }
    assert await got("active_url_from_accessTree", goto_prefix="https://www.") == (
        "https://www.shop.test/cart.html?a=1&b=x,y"
    )
    assert [tab["title"] for tab in await got("open_tabs_info")] == ["Shop", "Cart"]
    parsed = await got(
        "active_tab_url_parse", parse_keys=["a", "b", "c"], replace={"a": "first"}, split_list=["b"]
    )
    assert parsed == {"first": "1", "b": ["x", "y"], "c": ""}
    assert await got("element_property", selector="h1", property="textContent") == ["h1.textContent"]
    assert await got("site_state", key="cart") == ["mug"] and await got(
        "site_state", keys=["coupon", "no"]
    ) == {
        "coupon": "X",
        "no": None,
    }
    with pytest.raises(TaskError, match="getter vm_file needs a desktop"):
        await got("vm_file", path="a")
    with pytest.raises(TaskError, match="no getter 'vlc_config'"):
        await got("vlc_config")


@pytest.mark.parametrize(
    ("func", "result", "rules", "expected"),
    [
        ("exact_match", {"a": [1]}, {"expected": {"a": [1]}}, 1.0),
        ("exact_match", {"a": [1, 2]}, {"expected": {"a": [1]}}, 0.0),
        ("match_in_list", "b", {"expected": ["a", "b"]}, 1.0),
        ("is_in_list", ["a"], {"expected": "b"}, 0.0),
        ("check_include_exclude", "all done", {"include": ["done"], "exclude": ["error"]}, 1.0),
        ("check_include_exclude", "done with error", {"include": ["done"], "exclude": ["error"]}, 0.0),
        ("check_include_exclude", None, {"include": []}, 0.0),
        ("check_direct_json_object", {"q": "tea", "n": "1"}, {"expected": {"q": "tea"}}, 1.0),
        ("check_direct_json_object", {"q": "tea"}, {"expected": {"q": "te"}, "expect_in_result": True}, 1.0),
        ("check_direct_json_object", None, {"expected": {"q": "tea"}}, 0.0),
        (
            "is_expected_active_tab",
            {"url": "http://www.a.test/"},
            {"type": "url", "url": "https://a.test"},
            1.0,
        ),
        (
            "is_expected_url_pattern_match",
            {"url": "http://a.test/b?c=1"},
            {"expected": ["a.test", "c=[0-9]"]},
            1.0,
        ),
        ("compare_text_file", "a b\n", "a b", 1.0),
        ("compare_text_file", None, "", 0.0),
        ("file_contains", "one two", {"expected": ["two", "three"]}, 0.0),
        ("check_json", '{"a": {"b": [1]}}', {"expect": [{"key": ["a", "b", 0], "ref": 1}]}, 1.0),
        ("check_json", '{"a": 1}', {"unexpect": [{"key": ["a"], "ref": 1}]}, 0.0),
        ("check_json", "no json", {"expect": []}, 0.0),
        ("is_expected_tabs", [{"url": "http://a.test/"}], {"type": "url", "urls": ["http://b.test/"]}, 0.0),
    ],
)
def test_metrics_report_the_final_reward(func: str, result: object, rules: object, expected: float) -> None:
    assert score(func, result, rules, {}) == expected


def test_several_checks_are_combined_as_in_osworld() -> None:
    assert together([1.0, 0.5], "and") == 0.75 and together([1.0, 0.0], "and") == 0.0
    assert together([0.0, 0.5], "or") == 0.5 and together([], "or") == 0.0
    two = task_from(config(evaluator={**TAB, "func": ["exact_match", "exact_match"], "conj": "or"}), "chrome")
    assert len(two.checks) == 2 and two.conj == "or"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"config": [{"type": "download", "parameters": {}}]}, "config step download is not known here"),
        ({"config": [{"type": "launch", "parameters": {"command": "gimp a.png"}}]}, "launch of gimp"),
        ({"evaluator": {**TAB, "func": "compare_table"}}, "metric compare_table"),
        ({"evaluator": {**TAB, "result": {"type": "vm_file"}}}, "getter vm_file"),
        ({"evaluator": {}}, "KeyError 'func'"),
    ],
)
def test_a_task_that_needs_a_desktop_is_skipped_with_a_reason(tmp_path: Path, more: Any, reason: str) -> None:
    (tmp_path / "chrome").mkdir()
    (tmp_path / "chrome" / "good.json").write_text(json.dumps(config(id="good")))
    (tmp_path / "chrome" / "bad.json").write_text(json.dumps(config(id="bad", **more)))
    good, refused = tasks_of(tmp_path)
    assert [task.name for task in good] == ["good"] and reason in refused["chrome/bad.json"]
    assert convert(tmp_path, tmp_path / "out", share=0)["train"] == ["good"]


def test_a_row_cannot_name_a_file_outside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    (folder / "chrome").mkdir(parents=True)
    (tmp_path / "secret.json").write_text(json.dumps(config()))
    (folder / "chrome" / "one.json").write_text(json.dumps(config()))
    row = {"domain": "chrome", "example_id": "one"}
    assert task_of(Task("", metadata=row), folder).instruction == "do it"
    for domain, name in (("..", "secret"), ("chrome", "../../secret"), ("chrome", "none")):
        with pytest.raises(TaskError):
            task_of(Task("", metadata={"domain": domain, "example_id": name}), folder)
    with pytest.raises(TaskError, match="needs task_config"):
        task_of(Task("x"), None)


def test_thirty_tasks_in_six_families_are_split_without_overlap() -> None:
    names = task_names(TASKS)
    assert len(names) == 30 and len({name.partition("/")[0] for name in names}) == 6
    sides = [
        {
            json.loads(line)["metadata"]["task_id"]
            for line in (TASKS.parent / "data" / file).read_text().splitlines()
        }
        for file in ("train.jsonl", "heldout.jsonl")
    ]
    assert not sides[0] & sides[1] and len(sides[0] | sides[1]) == 30 and len(sides[1]) == 6


def test_desktop_tasks_are_kept_if_a_desktop_is_available(tmp_path: Path) -> None:
    steps = [
        {"type": "launch", "parameters": {"command": "xterm"}},
        {"type": "execute", "parameters": {"command": "touch a", "shell": True}},
    ]
    asks = {"type": "execute", "parameters": {"command": ["python3", "-c", "import pyautogui"]}}
    (tmp_path / "os").mkdir()
    for name, found in (("good", steps), ("bad", [*steps, asks])):
        task = config(id=name, config=found, evaluator={**TAB, "result": {"type": "vm_file", "path": "a"}})
        (tmp_path / "os" / f"{name}.json").write_text(json.dumps(task))
    good, refused = tasks_of(tmp_path, desktop=True)
    assert [task.name for task in good] == ["good"] and "needs pyautogui" in refused["os/bad.json"]
    assert not tasks_of(tmp_path)[0]


@pytest.mark.timeout(600)
def test_solutions_solve_their_tasks_and_cheats_none(
    needs_browser: None, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [
        "forms-booking",
        "search-missing",
        "tables-archive",
        "settings-letters",
        "drag-tidy",
        "drag-swap",
        "pages-two-tabs",
    ]
    assert main([str(TASKS), "--parallel", "4", "--only", *names]) == 0, capsys.readouterr().out
    assert "7 tasks: 7 solutions, 0 empty attempts and 0 cheats solve theirs" in capsys.readouterr().out
