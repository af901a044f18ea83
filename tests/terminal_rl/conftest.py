"""Task folders for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from terminal_rl.task_folder import TaskFolder, read_task

Write = Callable[..., TaskFolder]
DONE = (
    'from pathlib import Path\n\n\ndef test_done():\n    assert Path("/app/done").read_text() == "yes\\n"\n'
)


@pytest.fixture
def write_task(tmp_path: Path) -> Write:
    """f(tests, **texts by path): writes a terminal-bench task; `__` in a name stands for a slash, `_` at its end for
    nothing."""

    def write(tests: str = DONE, name: str = "a-task", seconds: float = 20.0, **files: str) -> TaskFolder:
        folder = tmp_path / "tasks" / name
        (folder / "tests").mkdir(parents=True)
        yaml = f"instruction: Write yes to /app/done.\nmax_test_timeout_sec: {seconds}\n"
        (folder / "task.yaml").write_text(yaml)
        (folder / "tests" / "test_outputs.py").write_text(tests)
        for path, text in files.items():
            file = folder / path.replace("__", "/").replace("_dot_", ".")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return read_task(folder)

    return write
