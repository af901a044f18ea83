"""Tests that a GGUF file becomes an equivalent Hugging Face folder, with its template and clear rejections."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import ROOT
from tests.fakes.gguf_model import write_gguf


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("convert_gguf", ROOT / "slime/tools/convert_gguf_to_hf.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # a dataclass looks up its module there
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_converted_folder_is_the_files_model(tool: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    model = write_gguf(file)
    output = tmp_path / "folder"
    assert tool.main(["--input", str(file), "--output", str(output)]) == 0
    read = AutoModelForCausalLM.from_pretrained(output).eval()
    assert read.dtype == torch.float32 and not hasattr(read.config, "quantization_config")
    ids = torch.arange(12)[None]
    with torch.inference_mode():
        torch.testing.assert_close(read(ids).logits, model(ids).logits, atol=1e-4, rtol=1e-4)
    tokenizer = AutoTokenizer.from_pretrained(output)
    text = "hello 12 héllo"
    said = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False)
    assert said == f"<|im_start|>user\n{text}<|im_end|>\n" and tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert not list(tmp_path.glob(".*")), "nothing half written stays"


@pytest.mark.parametrize(("pre", "pieces"), [("smollm", ["1", "2"]), ("gpt-2", ["12"])])
def test_digits_are_split_as_the_file_specifies(
    tool: ModuleType, tmp_path: Path, pre: str, pieces: list[str]
) -> None:
    file = tmp_path / "model.gguf"
    write_gguf(file, pre)
    assert tool.main(["--input", str(file), "--output", str(tmp_path / "folder")]) == 0
    assert AutoTokenizer.from_pretrained(tmp_path / "folder").tokenize("12") == pieces


def test_inconvertible_tasks_are_reported_in_one_line(
    tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "folder"

    def refused(file: Path, *more: str) -> str:
        assert tool.main(["--input", str(file), "--output", str(output), *more]) == 2
        return capsys.readouterr().err.splitlines()[-1]

    other = tmp_path / "other.gguf"
    assert "is not a file" in refused(other)
    other.write_bytes(b"PK something")
    assert "is not a GGUF file" in refused(other)
    file = tmp_path / "model.gguf"
    write_gguf(file, template=None)
    assert "has no chat template" in refused(file) and not output.exists()
    output.mkdir()
    assert "exists; add -f" in refused(file)
