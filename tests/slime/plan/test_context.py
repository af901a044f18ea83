"""Tests the context length of a model as engines compute it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slime.plan.shape import most_tokens

YARN = {"rope_type": "yarn", "factor": 4.0}


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"max_position_embeddings": 8192, "rope_scaling": None}, 8192),
        ({"max_position_embeddings": 32768, "rope_scaling": YARN}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {**YARN, "original_max_position_embeddings": 1024}}, 4096),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"text_config": {"max_position_embeddings": 262144}}, 262144),
        ({}, 0),
    ],
)  # fmt: skip
def test_the_context_length_is_read_from_a_config(config: dict[str, Any], tokens: int) -> None:
    assert most_tokens(config) == tokens


def test_the_context_length_is_found_for_a_folder_a_name_and_neither(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": 77}))

    def told(model: str) -> str:
        command = [sys.executable, "-S", "-m", "slime.plan.shape", model]  # without any package
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert told(str(tmp_path)) == "77\n" and told("/nowhere/Qwen3-4B") == "40960\n"
    assert told("/nowhere/mine") == "0\n"
