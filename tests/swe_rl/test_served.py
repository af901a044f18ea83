"""Tests a pool of repositories: packages, images of registries, and the content of its folder."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from slime.agents import Task
from slime.errors import ConfigError, DataError
from swe_rl import served
from swe_rl.instance import to_instance
from swe_rl.served import check_request, folder_of


def row(**columns: object) -> dict[str, object]:
    return {"instance_id": "i", "problem_statement": "p", "FAIL_TO_PASS": ["t"], **columns}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    (tmp_path / "tasks" / "repository").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret").write_text("secret")
    (tmp_path / "home" / "image.tar").write_text("")
    (tmp_path / "tasks" / "out").symlink_to(tmp_path / "home")
    return tmp_path / "tasks"


def refused(columns: dict[str, object], folder: Path | None) -> bool:
    try:
        check_request(to_instance(row(**columns), "here"), folder)
    except DataError:
        return True
    return False


@pytest.mark.parametrize(
    "columns",
    [
        {"folder": "{home}"},
        {"repo": "{home}"},
        {"folder": "{tasks}/../home"},
        {"folder": "{tasks}/out"},
        {"folder": "/"},
        {"folder": "."},
        {"folder": ".."},
        {"repo": "owner/name"},
        {"image_name": "{home}/image.tar"},
        {"docker_image": "docker-archive:{home}/image.tar"},
        {"image": "dir:{home}"},
        {"image": "oci:{home}"},
        {"image": "oci-archive:home/image.tar"},
        {"image": "containers-storage:x"},
        {"image": "tarball:{home}/image.tar"},
        {"image": "tarball:image.tar"},
        {"image": "new-transport:{home}/image.tar"},
        {"image": "-v"},
        {"image": "../home/image.tar"},
    ],
)
def test_a_request_cannot_name_paths_outside_the_task_folder(tasks: Path, columns: dict[str, str]) -> None:
    named: dict[str, object] = {
        name: value.format(home=tasks.parent / "home", tasks=tasks) for name, value in columns.items()
    }
    assert refused(named, tasks.resolve()) and refused(named, None)


def test_files_in_the_folder_packages_and_registry_images_are_served(tasks: Path) -> None:
    below: dict[str, object] = {"folder": str(tasks / "repository")}
    assert not refused(below, tasks.resolve()) and refused(below, None)
    published: list[dict[str, object]] = [
        {"repo": "idna==3.10"},
        {"repo": "owner/name", "image_name": "docker.io/swebench/sweb.eval.x86_64.a_1776_a-1:latest"},
        {"image_name": f"localhost:5000/team/x__y:v1@sha256:{0:064}"},
        {"files": {"a.py": "x = 1\n"}},
    ]
    assert not any(refused(one, folder) for one in published for folder in (None, tasks.resolve()))


def test_a_pool_rejects_another_users_folder_before_copying(
    tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWE_TASKS_DIR", str(tasks))
    served._make.cache_clear()
    environment = served.environment()
    about = {"instance": row(folder=str(tasks.parent / "home"))}
    with pytest.raises(DataError, match="is not served"):
        asyncio.run(environment.reset(Task("", metadata=about)))
    assert environment.work is None  # type: ignore[attr-defined]
    with contextlib.suppress(Exception):
        asyncio.run(environment.close())
    served._make.cache_clear()


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="SWE_TASKS_DIR"):
        folder_of(str(tmp_path / "none"))
