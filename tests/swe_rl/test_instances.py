from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from slime.errors import ConfigError, DataError
from swe_rl.instance import Instance, read_instances, to_instance
from swe_rl.prompts import place_of, write_prompts
from tests import ROOT

ROW: dict[str, Any] = {
    "instance_id": "a__b-1",
    "repo": "a/b",
    "problem_statement": "It breaks.",
    "FAIL_TO_PASS": '["tests/test_a.py::test_x"]',
    "PASS_TO_PASS": "[]",
    "image_name": "some/image",
    "patch": "diff --git a/a.py b/a.py\n",
}


def test_lists_in_swe_bench_rows_are_json_texts() -> None:
    read = to_instance(ROW, "row 1")
    assert read.fail_to_pass == ("tests/test_a.py::test_x",)
    assert read.pass_to_pass == ()
    assert read.image == "some/image"


def test_rows_in_the_metadata_of_training_files_are_read() -> None:
    assert to_instance(
        {"text": "x", "metadata": {"instance": ROW, "data_source": "swe-gym"}}, "row 1"
    ) == to_instance(ROW, "row 1")


def test_r2e_defines_the_expected_result_of_each_test() -> None:
    row = {name: value for name, value in ROW.items() if name not in ("FAIL_TO_PASS", "PASS_TO_PASS")}
    row["expected_output_json"] = json.dumps({"test_a": "PASSED", "test_b": "FAILED"})
    assert to_instance(row, "row 1").fail_to_pass == ("test_a",)


def test_parquet_and_json_lines_give_the_same_instances(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(ROW) + "\n")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([ROW]), tmp_path / "a.parquet")
    assert list(read_instances(tmp_path / "a.jsonl")) == list(read_instances(tmp_path / "a.parquet"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"FAIL_TO_PASS": "[]"}, "FAIL_TO_PASS is empty"),
        ({"FAIL_TO_PASS": "[1]"}, "list of ids"),
        ({"FAIL_TO_PASS": "no json"}, "is not JSON"),
        ({"problem_statement": " "}, "problem_statement"),
        ({"instance_id": None}, "instance_id"),
        ({"repo": "", "image_name": ""}, "nothing to work on"),
        ({"bug": {"line": 1}}, "not a recipe"),
    ],
)
def test_an_invalid_row_is_reported_with_its_position(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({**ROW, **change}) + "\n")
    with pytest.raises(DataError, match=said) as raised:
        list(read_instances(path))
    assert str(path) in str(raised.value)


def test_a_duplicate_id_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(2 * (json.dumps(ROW) + "\n"))
    with pytest.raises(DataError, match="occurs twice"):
        list(read_instances(path))


def test_an_instance_round_trips_through_a_file(tmp_path: Path, instance: Instance) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(instance.to_row()) + "\n")
    assert list(read_instances(path)) == [instance]


def test_shipped_instances_are_of_several_packages_and_split_by_function(tmp_path: Path) -> None:
    shipped = list(read_instances(ROOT / "swe-rl/instances/factory.jsonl"))
    assert len(shipped) >= 40
    assert len({one.repository for one in shipped}) >= 5
    assert all(one.bug and one.test_files and one.fail_to_pass for one in shipped)
    manifest = write_prompts(shipped, tmp_path)
    held = {place_of(one) for one in shipped if one.instance_id in manifest["heldout"]}
    assert held
    assert not held & {place_of(one) for one in shipped if one.instance_id in manifest["train"]}
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert [to_instance(row, "row").instance_id for row in rows] == manifest["train"]


def test_too_few_instances_for_a_split_are_rejected(tmp_path: Path, instance: Instance) -> None:
    with pytest.raises(ConfigError, match="leaves none"):
        write_prompts([instance], tmp_path)
