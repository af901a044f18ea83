"""Tests that models which cannot be served are rejected at start in one line."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys

import pytest

from slime.engines.launch import main
from tests import ROOT


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["--backend", "embedded", *flags])
    assert ended.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_a_folder_without_a_model_is_refused(capsys, tmp_path):
    assert "config.json" in refused(capsys, "--model-path", str(tmp_path), "--port", "0")


def test_an_occupied_port_is_rejected_before_loading(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert "cannot listen" in refused(capsys, "--model-path", "nowhere", "--port", str(port))


def test_a_context_longer_than_the_model_is_refused(capsys, model_path):
    flags = ["--model-path", str(model_path), "--port", "0", "--context-length"]
    assert "4096 positions" in refused(capsys, *flags, "5000")
    assert "holds 1000 tokens" in refused(capsys, *flags, "2000", "--max-total-tokens", "1000")


def test_unknown_flags_are_refused(capsys, model_path):
    assert "--no-such-flag" in refused(capsys, "--model-path", str(model_path), "--no-such-flag")


def test_a_weights_file_that_names_other_weights_is_refused(capsys, model_path, tmp_path):
    file = tmp_path / "live.json"
    file.write_text(json.dumps({"version": 3, "path": str(model_path), "checksum": "0" * 64}))
    flags = ["--model-path", str(model_path), "--port", "0", "--weights-file", str(file)]
    assert "checksum differs" in refused(capsys, *flags)
    file.write_text("[]")
    assert "not a valid weights file" in refused(capsys, *flags)


def test_an_unknown_architecture_is_refused(capsys, model_path, tmp_path):
    folder = tmp_path / "odd"
    shutil.copytree(model_path, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({**config, "model_type": "abacus", "architectures": ["Abacus"]})
    )
    assert "abacus" in refused(capsys, "--model-path", str(folder), "--port", "0")


def test_the_command_line_is_parsed_without_loading_torch():
    slime = ROOT / "slime"
    code = "import sys, slime.engines.launch; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=slime)
