"""Tests task folders in both layouts, their rejections, and their conversion to prompt files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slime.agents import Task
from terminal_rl.check import TASKS
from terminal_rl.convert import main as convert
from terminal_rl.task_folder import TaskError, read_task, task_folders
from terminal_rl.tasks import task_of
from tests.terminal_rl.conftest import DONE, Write


def test_both_layouts_are_read() -> None:
    bench, harbor = read_task(TASKS / "git-find-commit"), read_task(TASKS / "files-config-value")
    assert bench.instruction.startswith("The repository /app/repo") and bench.setup is not None
    assert (bench.difficulty, bench.category, bench.agent_seconds, bench.test_seconds) == (
        "medium",
        "git",
        360,
        60,
    )
    assert harbor.category == "files" and harbor.setup is None and harbor.solution is not None
    assert [place for _, place in harbor.files] == ["."]
    assert harbor.test_names == ("test_the_one_port_has_changed_and_nothing_else",)


def test_the_shipped_tasks_have_six_families() -> None:
    tasks = [read_task(path) for path in task_folders(TASKS)]
    families = {task.category for task in tasks}
    assert len(tasks) >= 24 and families == {"archives", "data", "files", "git", "repair", "text"}
    assert all(task.solution is not None and (task.path / "cheat.sh").is_file() for task in tasks)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("task.yaml", "instruction: [", "task.yaml cannot be read"),
        ("task.yaml", "- a list", "must map names to values"),
        ("task.yaml", "difficulty: easy", "no instruction"),
        ("task.yaml", "instruction: x\nmax_test_timeout_sec: soon", "must be seconds"),
        ("task.yaml", "instruction: x\nmax_agent_timeout_sec: -1", "must be seconds"),
        ("tests/test_outputs.py", "", "no function whose name begins with test_"),
        ("tests/test_outputs.py", "def test_x(:", "line 1"),
        ("tests/test_outputs.py", "import pytest\ndef test_x(): pass", "imports pytest"),
        ("tests/test_outputs.py", "def test_x(tmp_path): pass", "requests a fixture"),
        ("Dockerfile", "FROM debian\nRUN apt-get install x", "line 2: RUN apt-get needs podman or docker"),
        ("Dockerfile", "COPY ../../secret /app/", "there is no ../../secret"),
        ("Dockerfile", "WORKDIR /app\nCOPY task.yaml /etc/passwd", "outside the working folder /app"),
        ("Dockerfile", "COPY --chown=1 task.yaml .", "needs podman or docker"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    write_task: Write, monkeypatch: pytest.MonkeyPatch, file: str, text: str, complaint: str
) -> None:
    monkeypatch.setattr("terminal_rl.task_folder.tools", list)  # neither podman nor docker
    path = write_task().path
    (path / file).write_text(text)
    with pytest.raises(TaskError, match=complaint) as refused:
        read_task(path)
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


def test_a_task_without_tests_is_refused(write_task: Write, tmp_path: Path) -> None:
    path = write_task().path
    (path / "tests" / "test_outputs.py").unlink()
    with pytest.raises(TaskError, match="a task without tests has no reward"):
        read_task(path)
    with pytest.raises(TaskError, match=r"no task.yaml .* and no task.toml"):
        read_task(tmp_path)


def test_a_dockerfile_defines_where_files_go(write_task: Write) -> None:
    docker = "# a comment\nFROM debian \\\n  AS base\nWORKDIR /srv/work\nCOPY data data\nCOPY one.txt ./\nCMD bash\n"
    task = write_task(Dockerfile=docker, data__a="1", one_dot_txt="2")
    assert task.workdir == "/srv/work"
    assert [(path.name, place) for path, place in task.files] == [("data", "data"), ("one.txt", "one.txt")]


def test_tasks_become_prompt_files_with_a_stable_split(
    write_task: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(10):
        folder = write_task(name=f"task-{number}").path.parent
    (folder / "broken").mkdir()
    (folder / "broken" / "task.toml").write_text("= 1")
    assert convert(["--tasks_dir", str(folder), "--output_dir", str(folder.parent / "out")]) == 0
    told = capsys.readouterr()
    assert "8 tasks to train on, 2 held out" in told.out and "left out:" in told.err and "broken" in told.err
    rows = [json.loads(line) for line in (folder.parent / "out" / "train.jsonl").read_text().splitlines()]
    assert rows[0]["task"] == [{"role": "user", "content": "Write yes to /app/done."}]
    about = rows[0]["metadata"]
    assert about["task_path"] == about["task_name"] and about["data_source"] == "terminal_bench"
    manifest = json.loads((folder.parent / "out" / "split_manifest.json").read_text())
    assert len(manifest["heldout"]) == 2 and not set(manifest["heldout"]) & set(manifest["train"])
    assert {row["metadata"]["task_name"] for row in rows} == set(manifest["train"])
    (folder / "task-0" / "task.yaml").write_text("instruction: changed")
    assert convert(["--tasks_dir", str(folder)]) == 0
    again = json.loads((folder.parent / "tasks_convert" / "split_manifest.json").read_text())
    assert again["heldout"] == manifest["heldout"]


def test_a_folder_that_cannot_be_converted_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert convert(["--tasks_dir", str(tmp_path / "none")]) == 2
    assert "no folder with a task.yaml or task.toml" in capsys.readouterr().err
    one = tmp_path / "one" / "task"
    (one / "tests").mkdir(parents=True)
    (one / "task.yaml").write_text("instruction: x")
    (one / "tests" / "test_outputs.py").write_text(DONE)
    assert convert(["--tasks_dir", str(tmp_path / "one")]) == 2
    assert "leaves none to train on" in capsys.readouterr().err
    assert convert(["--tasks_dir", str(tmp_path / "one"), "--train_split", "1.0"]) == 0


@pytest.mark.parametrize("path", ["../other", "/etc", "a-task/../../x"])
def test_a_row_cannot_name_a_task_outside_the_tasks(write_task: Write, path: str) -> None:
    folder = write_task().path.parent
    with pytest.raises(TaskError, match="is outside"):
        task_of(Task("", metadata={"task_path": path}), folder)


def test_a_row_without_a_task_is_refused(write_task: Write) -> None:
    folder = write_task().path.parent
    assert task_of(Task("", metadata={"task_path": "a-task"}), folder).name == "a-task"
    for metadata, tasks_dir in (({}, folder), ({"task_path": "a-task"}, None)):
        with pytest.raises(TaskError, match="task_path"):
            task_of(Task("", metadata=metadata), tasks_dir)
