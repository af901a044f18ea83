"""Repositories in container images: their paths, the variables of their programs, and files that are hidden from
agents."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slime.errors import DataError
from slime.sandbox import Image, Limits, Workspace, image_of
from swe_rl.changes import top_names

LIMITS = Limits(
    memory=4 << 30,
    cpu_seconds=1800,
    processes=256,
    file_bytes=1 << 30,
    disk_bytes=512 << 20,
    open_files=1024,
    output_chars=8 << 20,
)
"""The limits that the benchmarks give their containers; repositories with compiled parts need that much."""
REPOSITORY = "/testbed"
CONDA = "/opt/miniconda3"
R2E_TESTS, R2E_SCRIPT = "r2e_tests", "run_tests.sh"
HIDDEN_FILES = (R2E_SCRIPT, R2E_TESTS, "expected_test_output.json")
"""Files of R2E's images that show how the repository is tested. R2E's tests are in a folder of the root, too."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_ON_GITHUB = re.compile(r"[\w.-]+/[\w.-]+")


def image_name(row: Mapping[str, Any], source: str) -> str:
    """Returns the image of a row: the one that it names, or the one published by SWE-bench or SWE-Gym for it."""
    if row.get("folder"):
        return ""
    for column in ("image_name", "docker_image", "image"):
        if isinstance(row.get(column), str) and row[column]:
            return str(row[column])
    repository, identity = str(row.get("repo") or ""), str(row.get("instance_id") or "")
    if "base_commit" not in row or "__" not in identity or not _ON_GITHUB.fullmatch(repository):
        return ""
    if os.path.isdir(repository):
        return ""
    gym = "swe-gym" in source.lower() or "environment_setup_commit" not in row
    owner, between = ("xingyaoww", "_s_") if gym else ("swebench", "_1776_")
    return f"docker.io/{owner}/sweb.eval.x86_64.{identity.replace('__', between).lower()}:latest"


def repository_in(name: str) -> tuple[Image, str]:
    """Returns the image, and the folder of the repository in it. Raises ConfigError, DataError."""
    if "swesmith" in name:
        raise DataError(
            f"the image {name} holds the repository before its bug: give the row the broken one as a folder"
        )
    image = image_of(name)
    for place in (REPOSITORY, image.workdir):
        if place.strip("/") and image.folder(place) is not None:
            return image, place
    raise DataError(
        f"the image {name} has neither {REPOSITORY} nor a working folder, so it contains no repository"
    )


def variables(image: Image, place: str) -> dict[str, str]:
    """Returns environment variables for the repository's tests, as if conda's `testbed` or .venv were activated."""
    path = image.environment.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    conda, own = f"{CONDA}/envs/testbed", f"{place}/.venv"
    if _is_there(image, conda):
        entered = {
            "CONDA_PREFIX": conda,
            "CONDA_DEFAULT_ENV": "testbed",
            "PATH": f"{conda}/bin:{CONDA}/bin:{path}",
        }
    elif _is_there(image, own):
        entered = {"VIRTUAL_ENV": own, "PATH": f"{own}/bin:{path}"}
    else:
        entered = {"PATH": path}
    return {**ONE_THREAD, **entered}


def hidden_places_of(workspace: Workspace) -> dict[Path, str]:
    """Returns the paths of an image that are hidden from agents, each covered by the image's empty folder."""
    image = workspace.image
    if image is None or not _is_there(image, f"/{R2E_TESTS}"):
        return {}
    return {image.path / ".box": f"/{R2E_TESTS}"}


def installed_in(workspace: Workspace) -> frozenset[str]:
    """Returns top-level names that Python finds in the packages of a workspace's image; empty without an image."""
    image = workspace.image
    if image is None:
        return frozenset()
    places = (f"{CONDA}/envs/testbed", f"{workspace.place}/.venv", "/usr", "/usr/local")
    folders = [
        packages
        for place in places
        if (root := image.folder(place)) is not None
        for packages in root.glob("lib/python3*/*-packages")
    ]
    return frozenset(name for folder in folders for name in top_names(folder))


def script_of(eval_script: str, image: Image, place: str) -> str:
    """Returns the script of the image or row that runs the tests; empty if pytest is called with the test files."""
    if eval_script:
        return eval_script
    if _is_there(image, f"/{R2E_TESTS}") and (image.path / place.lstrip("/") / R2E_SCRIPT).is_file():
        return f"rm -rf {R2E_TESTS}; ln -s /{R2E_TESTS} {R2E_TESTS}; bash {R2E_SCRIPT}\n"
    return ""


def _is_there(image: Image, place: str) -> bool:
    return image.folder(place) is not None
