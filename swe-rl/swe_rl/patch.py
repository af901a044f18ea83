"""Checks which files a patch changes: tests, configuration and CI decide the verdict, so they may not be changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

_HEADER = re.compile(r"^diff --git (?:\"?a/(.*?)\"?) (?:\"?b/(.*?)\"?)$", re.MULTILINE)
_TEST_FOLDERS = {"test", "tests", "testing"}
_CONFIGURATION = {
    "conftest.py",
    "pytest.ini",
    "tox.ini",
    "noxfile.py",
    "setup.py",
    "setup.cfg",
    "pyproject.toml",
    "sitecustomize.py",
    "usercustomize.py",
    ".coveragerc",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    ".pythonrc.py",
    "pyvenv.cfg",
    ".gitattributes",
    ".gitmodules",
    "makefile",
}
_STARTED = {"sitecustomize", "usercustomize", "conftest"}
_OUTSIDE = {".git", ".venv"}
_CI_FOLDERS = {".github", ".gitlab", ".circleci"}
_CI_FILES = {".gitlab-ci.yml", ".travis.yml", "azure-pipelines.yml", "appveyor.yml"}


@dataclass(frozen=True)
class PatchPolicy:
    """The files that a patch may not change (as upstream's SWE_STRICT_NO_TEST_PATCH and SWE_STRICT_NO_CONFIG_PATCH).

    Attributes:
        tests: reject changes of test files.
        configuration: reject changes to the configuration of test runner, build or CI, compiled code, and modules
            that shadow others.
        machinery: in addition, reject source that refers to the test runner, unless the repository's own source does.
        most_bytes: size limit of a patch.
    """

    tests: bool = True
    configuration: bool = True
    machinery: bool = True
    most_bytes: int = 1 << 20

    def complaint(self, patch: str, test_files: frozenset[str] = frozenset()) -> str | None:
        """Returns why a patch is rejected, or None.

        Args:
            test_files: further paths of the instance's tests.
        """
        if not patch.strip():
            return "the patch is empty"
        if len(patch.encode()) > self.most_bytes:
            return f"the patch has more than {self.most_bytes} bytes"
        touched = files_of(patch)
        if not touched:
            return "this is not a git patch"
        for file in touched:
            if complaint := self.complaint_of_file(file, test_files):
                return complaint
        return "links are not graded" if re.search(r"^new file mode 120000$", patch, re.MULTILINE) else None

    def complaint_of_file(self, file: str, test_files: frozenset[str] = frozenset()) -> str | None:
        """Returns why a patch may not change this path, or None."""
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or any(part in path.parts for part in _OUTSIDE):
            return f"{file} is outside of the repository's files"
        if self.tests and (file in test_files or is_test(path)):
            return f"{file} is a test"
        if self.configuration and is_configuration(path):
            return f"{file} configures tests, build or CI"
        return None


def files_of(patch: str) -> list[str]:
    """Returns the paths in a git patch, old and new names, without duplicates."""
    return list(dict.fromkeys(name for pair in _HEADER.findall(patch) for name in pair))


def is_test(path: PurePosixPath) -> bool:
    """Returns whether pytest or unittest would collect the file, or whether it is in a folder of tests."""
    name = path.name.lower()
    if any(part.lower() in _TEST_FOLDERS for part in path.parts[:-1]):
        return True
    return name.startswith("test_") or name.endswith("_test.py") or name in {"tests.py", "test.py"}


def is_configuration(path: PurePosixPath) -> bool:
    name = path.name.lower()
    if any(part.lower() in _CI_FOLDERS for part in path.parts[:-1]) or name in _CI_FILES:
        return True
    if any(part.lower().endswith((".dist-info", ".egg-info")) for part in path.parts):
        return True
    if any(part.lower() in _STARTED for part in path.parts[:-1]):
        return True
    return name in _CONFIGURATION or name.endswith(".pth") or name.startswith("requirements")
