"""The plug-in's own tests, in Node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "extensions" / "rl-training-headers"
NODE_AT_LEAST = 20


def _node() -> str:
    node = shutil.which("node")
    if node is not None:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
        if int(re.sub(r"\D.*", "", version.lstrip("v"))) >= NODE_AT_LEAST:
            return node
    warnings.warn(
        f"NOT TESTED: the OpenClaw plug-in, for want of Node {NODE_AT_LEAST} or newer", stacklevel=1
    )
    pytest.skip(f"Node {NODE_AT_LEAST} or newer is not here")


def test_the_plugin_passes_its_own_tests() -> None:
    done = subprocess.run(
        [_node(), "--test"], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"pass 1\d", done.stdout)


def test_manifest_and_package_have_the_same_provider_and_files() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    manifest = json.loads((FOLDER / "openclaw.plugin.json").read_text())
    assert package["openclaw"]["providers"] == manifest["providers"]
    assert all((FOLDER / name).is_file() for name in [*package["files"], *package["openclaw"]["extensions"]])
    assert set(manifest["configSchema"]["properties"]) == set(manifest["uiHints"])
