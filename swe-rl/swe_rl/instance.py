"""An instance: a repository, its defect, and the deciding tests. Includes readers of the usual files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slime.errors import DataError
from slime.rollout.prompts import PARQUET, json_rows, parquet_rows
from swe_rl.factory.mutations import Mutation
from swe_rl.images import image_name

FACTORY = "factory"


@dataclass(frozen=True)
class Instance:
    """One task.

    Attributes:
        instance_id: unique in its file; used in the names of logs and splits.
        repository: `name==version` of a package, or a local folder.
        image: container image that has it instead.
        problem_statement: the text that the agent reads.
        fail_to_pass: ids of tests that fail before the repair and must pass after it.
        pass_to_pass: ids of tests that must still pass.
        bug: the mutation that breaks the repository, if the factory made it.
        patch: the repair; never shown to an agent.
        test_patch: adds the deciding tests, if the repository lacks them.
        test_files: paths that the agent cannot see and may not change.
        files: the whole repository by path, if it is small enough for a row.
        eval_script: bash whose exit code is the verdict, if no tests are named (SWE-Gym's column).
    """

    instance_id: str
    problem_statement: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    repository: str = ""
    image: str = ""
    bug: Mutation | None = None
    patch: str = ""
    test_patch: str = ""
    test_files: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    eval_script: str = ""

    def to_row(self) -> dict[str, Any]:
        """Returns a line of a JSONL file, in the columns of SWE-bench."""
        row: dict[str, Any] = {
            "instance_id": self.instance_id,
            "repo": self.repository,
            "problem_statement": self.problem_statement,
            "FAIL_TO_PASS": list(self.fail_to_pass),
            "PASS_TO_PASS": list(self.pass_to_pass),
        }
        for name in ("patch", "test_patch", "eval_script", "files"):
            if getattr(self, name):
                row[name] = getattr(self, name)
        if self.image:
            row["image_name"] = self.image
        if self.test_files:
            row["test_files"] = list(self.test_files)
        return row | {"bug": self.bug.to_dict()} if self.bug else row


def read_instances(path: Path) -> Iterator[Instance]:
    """Yields the instances of a JSONL or Parquet file: rows of SWE-bench, SWE-Gym, SWE-smith, R2E or the factory, and
    rows with the instance in `metadata.instance` or `instance`, as in training files.

    Raises:
        DataError: a row is not an instance; the error gives its position.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file of instances (JSONL or Parquet)")
    rows = parquet_rows(path) if path.suffix in PARQUET else json_rows(path)
    seen: set[str] = set()
    for where, row in rows:
        instance = to_instance(row, where)
        if instance.instance_id in seen:
            raise DataError(f"{where}: instance_id {instance.instance_id!r} occurs twice")
        seen.add(instance.instance_id)
        yield instance


def to_instance(row: Mapping[str, Any], where: str) -> Instance:
    """Raises DataError for a row that is not an instance."""
    inner = _json(row.get("metadata"), where, "metadata") or {}
    nested = _json(inner.get("instance") if isinstance(inner, Mapping) else None, where, "metadata.instance")
    source = str(inner.get("data_source", "")) if isinstance(inner, Mapping) else ""
    row = nested or _json(row.get("instance"), where, "instance") or row
    tests = {name: _tests(row, name, where) for name in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    script = str(row.get("eval_script") or "")
    if not tests["FAIL_TO_PASS"] and not script:
        raise DataError(f"{where}: FAIL_TO_PASS is empty, so no test defines the repair")
    bug = row.get("bug")
    try:
        made = Mutation(**bug) if bug else None
    except TypeError as error:
        raise DataError(f"{where}: the bug is not a recipe of the factory: {error}") from error
    instance = Instance(
        _text(row, where, "instance_id", "id", "commit_hash"),
        _text(row, where, "problem_statement", "issue", "text"),
        tests["FAIL_TO_PASS"],
        tests["PASS_TO_PASS"],
        str(row.get("folder") or row.get("repo") or ""),
        image_name(row, source),
        made,
        str(row.get("patch") or ""),
        str(row.get("test_patch") or ""),
        tuple(row.get("test_files") or ()),
        dict(_json(row.get("files"), where, "files") or {}),
        script,
    )
    if not instance.repository and not instance.image and not instance.files:
        raise DataError(f"{where}: no repo, folder or image_name, so there is nothing to work on")
    return instance


def _text(row: Mapping[str, Any], where: str, *names: str) -> str:
    for name in names:
        if isinstance(row.get(name), str) and row[name].strip():
            return str(row[name])
    raise DataError(f"{where}: no text in column {names[0]!r}; it has {', '.join(map(repr, row)) or 'none'}")


def _tests(row: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    """Parses test ids. SWE-bench stores a list as JSON text, Parquet files a list, R2E a mapping of expected
    outcomes."""
    tests = _json(row.get(name), where, name)
    if tests is None and name == "FAIL_TO_PASS":
        expected = _json(row.get("expected_output_json"), where, "expected_output_json") or {}
        tests = [test for test, verdict in expected.items() if verdict == "PASSED"]
    tests = [] if tests is None else list(tests)
    if not all(isinstance(test, str) and test for test in tests):
        raise DataError(f"{where}: {name} must be a list of ids of tests")
    return tuple(tests)


def _json(value: Any, where: str, name: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise DataError(f"{where}: column {name!r} is not JSON: {error}") from error
