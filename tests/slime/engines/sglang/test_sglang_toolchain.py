"""SGLang builds kernels with nvcc: one that pip brought is found, made whole, and builds for an H100 on any machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from slime.engines.sglang import toolchain
from slime.engines.sglang.toolchain import compiler_environment, packaged_home, problems
from slime.errors import ConfigError

KERNEL = """
#include <cuda/std/array>
#include <cuda_runtime.h>
__global__ void add(const float* from, float* to, int count) {
  cuda::std::array<int, 1> most{count};
  int place = blockIdx.x * blockDim.x + threadIdx.x;
  if (place < most[0]) to[place] += from[place];
}
extern "C" int launch(const float* from, float* to, int count) {
  add<<<(count + 255) / 256, 256>>>(from, to, count);
  return static_cast<int>(cudaGetLastError());
}
"""
BARE = {"PATH": "/nonexistent"}


@pytest.fixture(autouse=True)
def no_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "SYSTEM_HOME", Path("/nonexistent"))


@pytest.fixture
def python_with_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    home = tmp_path / "nvidia" / "cu13"
    for file in ("bin/nvcc", "nvvm/bin/cicc", "lib/libcudart.so.13"):
        (home / file).parent.mkdir(parents=True, exist_ok=True)
        (home / file).write_text("")
    monkeypatch.setattr(toolchain, "_ask", lambda python: [str(tmp_path), "True"])
    return "python"


def test_a_compiler_from_packages_gets_its_links_and_is_named(python_with_nvcc: str, tmp_path: Path) -> None:
    home = tmp_path / "nvidia" / "cu13"
    assert compiler_environment(python_with_nvcc, BARE) == {"CUDA_HOME": str(home)}
    assert (home / "lib64" / "libcudart.so").resolve() == home / "lib" / "libcudart.so.13"
    assert os.access(home / "bin" / "nvcc", os.X_OK) and os.access(home / "nvvm" / "bin" / "cicc", os.X_OK)
    assert compiler_environment(python_with_nvcc, BARE) == {"CUDA_HOME": str(home)}, (
        "a second engine finds it whole"
    )


def test_a_toolkit_of_the_machine_wins(python_with_nvcc: str, tmp_path: Path) -> None:
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("")
    nvcc.chmod(0o755)
    for environ in ({"CUDA_HOME": str(tmp_path / "toolkit")}, {"PATH": str(nvcc.parent)}):
        assert compiler_environment(python_with_nvcc, environ) == {}
    assert not (tmp_path / "nvidia" / "cu13" / "lib64").exists()


def test_a_python_without_a_compiler_is_told_what_brings_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_ask", lambda python: [str(tmp_path), "False"])
    assert compiler_environment("python", BARE) == {}
    said = " ".join(problems("python", BARE))
    assert "requirements-sglang.txt" in said and "g++" in said and "Python.h" in said


def test_ninja_counts_where_the_engine_looks_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_ask", lambda python: [str(tmp_path), "True"])
    python, ninja = str(tmp_path / "bin" / "python"), tmp_path / "bin" / "ninja"
    assert any(one.startswith(f"no ninja: {python} -m pip install") for one in problems(python, BARE))
    ninja.parent.mkdir()
    ninja.write_text("")
    ninja.chmod(0o755)
    assert "no ninja" not in " ".join(problems(python, BARE))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The driver's library as a machine without its headers has it."""
    library = tmp_path / "driver" / "libcuda.so.1"
    library.parent.mkdir()
    library.write_text("")
    monkeypatch.setattr(toolchain, "LINKED_FOLDERS", (str(library.parent),))
    monkeypatch.setattr(toolchain, "DRIVER_FOLDERS", (str(library.parent),))
    return library


def test_modules_that_ask_for_the_driver_by_its_short_name_are_linked(
    python_with_nvcc: str, tmp_path: Path, driver: Path
) -> None:
    stub = tmp_path / "nvidia" / "cu13" / "lib64" / "stubs" / "libcuda.so"
    for _ in range(2):
        compiler_environment(python_with_nvcc, BARE)
        assert stub.resolve() == driver
    moved = driver.rename(tmp_path / "libcuda.so.1")
    compiler_environment(python_with_nvcc, {**BARE, "LD_LIBRARY_PATH": str(tmp_path)})
    assert stub.resolve() == moved, "another machine has it elsewhere"


@pytest.mark.parametrize("there", ["libcuda.so", ""])
def test_nothing_is_linked_where_the_linker_finds_the_driver_or_there_is_none(
    python_with_nvcc: str, tmp_path: Path, driver: Path, there: str
) -> None:
    if there:
        (driver.parent / there).write_text("")
    else:
        driver.unlink()
    compiler_environment(python_with_nvcc, BARE)
    assert not (tmp_path / "nvidia" / "cu13" / "lib" / "stubs").exists()


def test_a_python_that_cannot_be_run_is_named() -> None:
    assert "SGLANG_PYTHON" in problems("/nonexistent/python", BARE)[0]


def test_a_link_that_cannot_be_made_is_refused_with_the_way_out(
    python_with_nvcc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: str) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(ConfigError, match="CUDA_HOME"):
        compiler_environment(python_with_nvcc, BARE)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its packages are for Linux on x86-64")
@pytest.mark.timeout(300)
def test_the_packaged_compiler_builds_and_links_a_kernel_for_an_h100(tmp_path: Path) -> None:
    """As SGLang calls it: -L$CUDA_HOME/lib64 -lcudart, with headers of <cuda/std/...>."""
    environment = compiler_environment(sys.executable, BARE)
    assert environment, f"{toolchain.PACKAGES} are in requirements-dev.txt"
    home = packaged_home(sys.executable)
    (tmp_path / "kernel.cu").write_text(KERNEL)
    command = [f"{home}/bin/nvcc", "-arch=sm_90a", "-std=c++20", "-Xcompiler", "-fPIC", "-shared"]
    command += ["-o", "kernel.so", "kernel.cu", f"-L{environment['CUDA_HOME']}/lib64", "-lcudart"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "kernel.so").stat().st_size > 0
