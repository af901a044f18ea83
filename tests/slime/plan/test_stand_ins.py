"""Tests stand-ins for packages that are not installed: what a module may do with them on import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

HEAD = """
import sys
from slime.plan import stand_ins
stand_ins.install()
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a Python with only the standard library and slime."""
    env = {"PYTHONPATH": f"{ROOT / 'slime'}:{ROOT / 'base'}"}
    return subprocess.run([sys.executable, "-S", "-c", HEAD + code], env=env, capture_output=True, text=True)


@pytest.mark.parametrize(
    "code",
    [
        "import absent.nn.functional as F; from absent import Tensor, nn; from absent.orm import Session",
        "from absent import Base\nclass A(Base, extra='forbid'):\n  x: int = 3\nassert A(x=1).x == 3",
        "from absent import A, B\nfrom typing import Generic, TypeVar\nclass C(A, B, Generic[TypeVar('T')]): pass",
        "from absent import no_grad, jit\n@no_grad()\n@jit\ndef f(): return 5\nassert f() == 5",
        "from absent import Tensor\ndef f(x: 'Tensor | None') -> list[Tensor]: ...\nU = Tensor | None\nO = None | Tensor",
        "from absent import c, select\nquery = ~select(c.id).where(c.a & c.b | c.d, c.n > 3)",
        "import absent\nSIZE = 2 * absent.eps + 1 - absent.x / 2; assert absent.__version__ == '0'",
        "import absent\nassert not isinstance(3, absent.Tensor) and not issubclass(int, absent.Tensor)",
        "import subprocess, pickle, copy, multiprocessing, asyncio, json",
        "import absent\nassert stand_ins.is_stand_in(absent) and not stand_ins.is_stand_in(sys)",
    ],
)
def test_a_module_can_declare_resources_without_its_missing_packages(code: str) -> None:
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", ["import slime.nowhere", "import os.nowhere", "import msvcrt"])
def test_missing_modules_of_an_installed_package_get_no_stand_in(code: str) -> None:
    assert "ModuleNotFoundError" in run(code).stderr


def test_code_that_calls_a_stand_in_fails_with_another_error_than_config_error(tmp_path: Path) -> None:
    assert "TypeError" in run("import absent\nfloat(absent.log(2))").stderr


def test_an_installed_package_can_be_replaced_for_speed() -> None:
    code = "stand_ins.replace('json')\nimport json\nassert stand_ins.is_stand_in(json)\nimport decimal"
    assert run(code).returncode == 0
