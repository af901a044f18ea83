"""python -m openclaw.judge: anyone's lines in, scores out."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from openclaw.judge.__main__ import build_parser, main, score_lines
from tests.openclaw.judge.conftest import with_hint_markers

if TYPE_CHECKING:
    from tests.openclaw.judge.conftest import FakeJudge


LINES = [
    {"id": "a", "response": "7", "next_state": "Thanks!", "next_state_role": "user", "note": "ignored"},
    {"response": "7", "next_state": "exit code 1", "next_state_role": "tool"},
    {
        "id": 9,
        "response": "7",
        "next_state": [{"role": "tool", "content": "ok"}, {"role": "user", "content": "Wrong."}],
    },
]


def write(path: Path, *lines: Any) -> str:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else orjson.dumps(line) for line in lines))
    return str(path)


def shown(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    out, error = capsys.readouterr()
    return [orjson.loads(line) for line in out.splitlines()], error


def test_each_line_gets_its_score_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(tmp_path / "f.jsonl", *LINES), "--backend", "rules", "--votes", "2"]) == 0
    results, error = shown(capsys)
    assert [(result["id"], result["score"], result["hint"]) for result in results] == [
        ("a", 1.0, None),
        (2, -1.0, None),
        (9, -1.0, None),
    ]
    assert [vote["score"] for vote in results[0]["votes"]] == [1, 1] and error == ""


def test_an_invalid_line_is_reported_and_the_others_are_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [
        b"{",
        {"response": "7"},
        {"response": 7, "next_state": "x"},
        {"response": "7", "next_state": ""},
        b"[]",
        b"\xff",
    ]
    role = {"response": "", "next_state": "x", "next_state_role": "dog"}
    assert main([write(tmp_path / "f.jsonl", LINES[0], *bad, role, b"", LINES[2])]) == 1
    results, error = shown(capsys)
    assert [result["id"] for result in results] == ["a", 9]
    assert [line.split(":")[0] for line in error.splitlines()] == [f"line {n}" for n in range(2, 9)]
    assert "line 3: next_state: Field required" in error


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    data = b"\n".join(orjson.dumps(line) for line in LINES)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert main(["-"]) == 0
    assert len(shown(capsys)[0]) == 3


@pytest.mark.parametrize(
    "words",
    [["nowhere.jsonl"], ["-", "--backend", "oracle"], ["-", "--prompt-dir", "x", "--backend", "openai"]],
)
def test_an_invalid_command_line_is_rejected_with_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


async def test_a_judge_model_scores_lines_and_returns_hints(
    judge_server: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    judge_server.script = [
        lambda body: (
            400
            if "exit code" in str(body)
            else with_hint_markers(body, r"\boxed{1} [HINT_START]Say it in prose.[HINT_END]")
        )
    ]
    args = build_parser().parse_args(
        ["-", "--backend", "openai", "--judge-url", judge_server.url, "--judge-model", "m", "--hint"]
    )
    text = "\n".join(orjson.dumps(line).decode() for line in LINES)
    assert await score_lines(args, io.StringIO(text)) == 1
    results, error = shown(capsys)
    assert [(result["id"], result["score"], result["hint"]) for result in results] == [
        ("a", 1.0, "Say it in prose."),
        (9, 1.0, "Say it in prose."),
    ]
    assert error.startswith("line 2: the judge failed: 127.0.0.1")


async def test_several_lines_are_judged_concurrently(
    judge_server: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    judge_server.delay = 0.05
    args = build_parser().parse_args(
        [
            "-",
            "--backend",
            "openai",
            "--judge-url",
            judge_server.url,
            "--judge-model",
            "m",
            "--concurrency",
            "4",
        ]
    )
    lines = [orjson.dumps({"id": n, "response": str(n), "next_state": "x"}).decode() for n in range(12)]
    async with asyncio.timeout(5):
        assert await score_lines(args, io.StringIO("\n".join(lines))) == 0
    assert [result["id"] for result in shown(capsys)[0]] == list(range(12))
    assert judge_server.most_open == 4


def test_a_byte_order_mark_is_accepted_and_messages_without_a_role_are_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = [{"response": "7", "next_state": [{"role": role, "content": "x"}]} for role in (["user"], None, 5)]
    path = Path(write(tmp_path / "f.jsonl", LINES[0], *bad))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert main([str(path)]) == 1
    results, error = shown(capsys)
    assert [result["id"] for result in results] == ["a"]
    assert error.count("message 0 has no role; write user, assistant or tool") == 3
