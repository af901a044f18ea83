"""Tests reading of prompt files, and the errors of invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from slime.errors import ConfigError, DataError
from slime.rollout.dataset import load_dataset, training_spec
from slime.rollout.prompts import Columns, read_prompts
from tests.fakes.fixtures import ParseArgs

COLUMNS = Columns("input", "label", "metadata", "tools")


def texts(found: list[Any]) -> list[Any]:
    return [prompt.prompt for _, prompt in found]


@pytest.mark.parametrize(
    ("slice_text", "expected"),
    [("", range(20)), ("@[3:5]", [3, 4]), ("@[:2]", [0, 1]), ("@[18:]", [18, 19]), ("@[-2:]", [18, 19])],
)
def test_a_slice_selects_rows_as_in_python(
    slice_text: str, expected: Any, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert texts(read_prompts(f"{path}{slice_text}", COLUMNS)) == [f"{a}+1=" for a in expected]


def test_parquet_gives_the_same_prompts_as_json_lines(tmp_path: Path) -> None:
    rows = [
        {"input": [{"role": "user", "content": "hi"}], "label": "a", "metadata": {"level": 1}},
        {"input": [{"role": "system", "content": "s", "name": "n"}], "label": "b", "metadata": {"level": 2}},
    ]
    lines, table = tmp_path / "p.jsonl", tmp_path / "p.parquet"
    lines.write_text("\n".join(map(json.dumps, rows)))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), table)
    expected = [prompt for _, prompt in read_prompts(str(lines), COLUMNS)]
    assert [prompt for _, prompt in read_prompts(str(table), COLUMNS)] == expected
    assert [prompt for _, prompt in read_prompts(f"{table}@[1:]", COLUMNS)] == expected[1:]


def test_metadata_and_tools_may_be_json_text_as_parquet_files_have_them(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    row = {"input": "x", "label": 1, "metadata": '{"level": 3}', "tools": '[{"name": "f"}]'}
    path.write_text(json.dumps(row))
    [(_, prompt)] = read_prompts(str(path), COLUMNS)
    assert prompt.metadata == {"level": 3, "tools": [{"name": "f"}]}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"input": "a", "label": 1}\n{"input": "b", \n', "p.jsonl:2: invalid JSON"),
        ('{"input": "a", "label": 1}\n[1]\n', "p.jsonl:2: must be a JSON object, got list"),
        (
            '{"input": "a", "label": 1}\n\n{"prompt": "b", "label": 2}\n',
            "p.jsonl:3: column 'input' (--input-key) is missing; columns: 'prompt'",
        ),
        ('{"input": "a"}\n', "p.jsonl:1: column 'label' (--label-key) is missing"),
        ('{"input": "", "label": 1}\n', "must be a non-empty text or list of messages"),
        ('{"input": [{"content": "a"}], "label": 1}\n', "a message needs a role"),
        ('{"input": "a", "label": 1, "metadata": 3}\n', "'metadata' must be an object, got int"),
        ("", "contains no prompts"),
    ],
)
def test_an_invalid_row_is_reported(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read_prompts(str(path), COLUMNS)
    assert complaint in str(caught.value)


def test_a_line_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b'{"input": "a", "label": 1}\n{"input": "\xff", "label": 1}\n')
    with pytest.raises(DataError, match="not UTF-8"):
        read_prompts(str(path), COLUMNS)


def test_a_file_that_is_not_parquet_despite_its_name_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    path.write_text("no")
    with pytest.raises(DataError, match="cannot read the Parquet file"):
        read_prompts(str(path), COLUMNS)


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("p.csv", "are read from"),
        ("absent.jsonl", "does not exist"),
        ("p.jsonl@[a:b]", r"must look like \[100:200\]"),
    ],
)
def test_an_unreadable_prompt_file_is_rejected_before_the_start(
    source: str, complaint: str, tmp_path: Path, make_args: ParseArgs
) -> None:
    for name in ("p.csv", "p.jsonl"):
        (tmp_path / name).write_text('{"input": "a"}\n')
    with pytest.raises(ConfigError, match=complaint):
        make_args(str(tmp_path / source))


def test_prompts_that_are_too_long_are_dropped_and_counted(make_args: ParseArgs) -> None:
    rows = [{"input": "a"}, {"input": "a b c d e f g h " * 10}, {"input": "b"}]
    dataset = load_dataset(training_spec(make_args(rows, "--rollout-max-prompt-len", "20")))
    assert [prompt.prompt for prompt in dataset.prompts] == ["a", "b"]
    assert dataset.too_long == 1


def test_the_context_leaves_room_for_an_answer(make_args: ParseArgs) -> None:
    assert make_args([{"input": "a"}], "--rollout-max-context-len", "21").rollout_max_prompt_len == 20
    with pytest.raises(ConfigError, match="leaves no room"):
        make_args([{"input": "a"}], "--rollout-max-context-len", "21", "--rollout-max-prompt-len", "21")


def test_only_prompts_that_are_too_long_is_an_error(make_args: ParseArgs) -> None:
    args = make_args([{"input": "a b c d e f"}], "--rollout-max-prompt-len", "1")
    with pytest.raises(DataError, match="all 1 prompts have more than 1 tokens"):
        load_dataset(training_spec(args))


def test_the_chat_template_gets_messages_tools_and_variables(make_args: ParseArgs) -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    rows = [
        {"input": "hi"},
        {"input": [{"role": "user", "content": "ho"}], "tools": [tool]},
    ]
    words = ["--apply-chat-template", "--apply-chat-template-kwargs", '{"enable_thinking": false}']
    first, second = load_dataset(training_spec(make_args(rows, *words))).prompts
    assert first.prompt == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert isinstance(second.prompt, str)
    assert '"name": "add"' in second.prompt
    assert "<|im_start|>user\nho" in second.prompt


def test_template_variables_that_are_not_an_object_are_rejected(make_args: ParseArgs) -> None:
    with pytest.raises(ConfigError, match="must be a JSON object"):
        make_args([{"input": "a"}], "--apply-chat-template", "--apply-chat-template-kwargs", "[1]")


def test_epochs_are_joined_to_full_batches(make_args: ParseArgs, rows: list[dict[str, Any]]) -> None:
    assert make_args(rows, "--rollout-batch-size", "6", "--num-epoch", "2").num_rollout == 6
    assert (
        make_args(rows, "--rollout-batch-size", "6", "--num-epoch", "2", "--num-rollout", "4").num_rollout
        == 4
    )
    with pytest.raises(ConfigError, match="has 20 prompts, less than --rollout-batch-size 21"):
        make_args(rows, "--rollout-batch-size", "21", "--num-epoch", "1")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["--over-sampling-batch-size", "1", "--rollout-batch-size", "2"],
            "is less than --rollout-batch-size",
        ),
        (["--mask-offpolicy-in-partial-rollout"], "needs --partial-rollout"),
        (["--rollout-temperature", "0"], "must be above 0"),
        (["--rollout-top-p", "1.5"], "--rollout-top-p"),
        (["--rollout-top-k", "0"], "--rollout-top-k"),
        (["--rollout-sample-timeout", "0"], "seconds above 0"),
        (["--eval-interval", "2"], "needs --eval-prompt-data"),
        (["--eval-prompt-data", "a"], "pairs of NAME and FILE"),
        (["--eval-prompt-data", "a", "nowhere.jsonl"], "does not exist"),
    ],
)
def test_invalid_settings_are_rejected(words: list[str], complaint: str, make_args: ParseArgs) -> None:
    with pytest.raises(ConfigError, match=complaint):
        make_args([{"input": "a"}], *words)


def test_a_run_without_prompts_is_refused(make_args: ParseArgs) -> None:
    with pytest.raises(ConfigError, match="no source of samples"):
        make_args(None)
