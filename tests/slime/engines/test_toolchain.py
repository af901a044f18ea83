"""Tests that engines compile kernels with nvcc: one installed by pip is found, completed, and builds for an H100 on
any machine."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from slime.engines import toolchain
from slime.engines.toolchain import compiler_environment, packaged_home, problems
from slime.errors import ConfigError
from tests import ROOT

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


def test_a_compiler_from_packages_gets_its_links_and_is_reported(
    python_with_nvcc: str, tmp_path: Path
) -> None:
    home = tmp_path / "nvidia" / "cu13"
    assert compiler_environment(python_with_nvcc, BARE) == {"CUDA_HOME": str(home)}
    assert (home / "lib64" / "libcudart.so").resolve() == home / "lib" / "libcudart.so.13"
    assert os.access(home / "bin" / "nvcc", os.X_OK) and os.access(home / "nvvm" / "bin" / "cicc", os.X_OK)
    assert compiler_environment(python_with_nvcc, BARE) == {"CUDA_HOME": str(home)}, (
        "a second engine finds it whole"
    )


def toolkit(home: Path, version: str) -> Path:
    """Creates a CUDA toolkit whose nvcc prints this release; without one it prints nothing."""
    nvcc = home / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    told = f"echo 'Cuda compilation tools, release {version}, V{version}.1'" if version else "exit 1"
    nvcc.write_text(f"#!/bin/sh\n{told}\n")
    nvcc.chmod(0o755)
    return home


def built_for(packages: Path, cuda: str) -> None:
    """Creates a torch that was built for this CUDA, in these packages."""
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text(f"__version__ = '2'\ncuda: Optional[str] = '{cuda}'\n")


@pytest.mark.parametrize(
    ("toolkit_version", "torch_cuda", "wins"),
    [
        ("13.0", "13.0", True),
        ("13.2", "13.0", True),
        ("13.0", "13.2", False),
        ("12.4", "13.0", False),
        ("12.8", "13.0", False),
        ("14.0", "13.0", False),
        ("", "13.0", True),  # it prints no version: left to the engine
        ("12.4", "", True),  # no torch there to compare with
    ],
)
def test_a_system_toolkit_with_the_engines_cuda_version_takes_precedence(
    python_with_nvcc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    toolkit_version: str, torch_cuda: str, wins: bool,
) -> None:  # fmt: skip
    if torch_cuda:
        built_for(tmp_path, torch_cuda)
    home = toolkit(tmp_path / "toolkit", toolkit_version)
    packaged = str(tmp_path / "nvidia" / "cu13")
    for environ in ({"CUDA_HOME": str(home)}, {"CUDA_PATH": str(home)}, {"PATH": f"{home}/bin:/bin"}, {}):
        if not environ:
            monkeypatch.setattr(toolchain, "SYSTEM_HOME", home)
        found = compiler_environment(python_with_nvcc, {"PATH": "/bin", **environ})
        names = ["CUDA_HOME", *(name for name in environ if name == "CUDA_PATH")]
        assert found == ({} if wins else dict.fromkeys(names, packaged))
    assert (tmp_path / "nvidia" / "cu13" / "lib64").exists() != wins


def test_a_variable_that_names_a_folder_without_nvcc_hides_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engines use CUDA_HOME without further search."""
    monkeypatch.setattr(toolchain, "_ask", lambda python: [str(tmp_path), "True"])
    home = toolkit(tmp_path / "toolkit", "13.0")
    environ = {"PATH": f"{home}/bin:/bin", "CUDA_HOME": str(tmp_path / "empty")}
    assert compiler_environment("python", environ) == {"CUDA_HOME": str(home)}


def test_a_compiler_of_another_cuda_version_is_rejected_if_it_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_ask", lambda python: [str(tmp_path), "True"])
    built_for(tmp_path, "13.2")
    old, near = toolkit(tmp_path / "old", "12.4"), toolkit(tmp_path / "near", "13.0")
    said = " ".join(problems("python", {"CUDA_HOME": str(old), "PATH": "/bin"}))
    assert f"no nvcc (nvcc 12.4 in {old} is for another CUDA version)" in said and "CUDA toolkit 13.2" in said
    assert "nvcc" not in " ".join(problems("python", {"CUDA_HOME": str(near), "PATH": "/bin"})), "same major"


def test_the_check_reports_the_compiler_and_torchs_cuda_version(
    python_with_nvcc: str, tmp_path: Path
) -> None:
    built_for(tmp_path, "13.0")
    old = toolkit(tmp_path / "old", "12.4")
    said = toolchain.found_compiler(python_with_nvcc, {"CUDA_HOME": str(old), "PATH": "/bin"})
    assert (
        f"(nvcc 12.4 in {old} is for another CUDA version) for a torch of CUDA 13.0" in said
        and "nvidia/cu13" in said
    )


def test_a_python_without_a_compiler_gets_advice_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_ask", lambda python: [str(tmp_path), "False"])
    assert compiler_environment("python", BARE) == {}
    said = " ".join(problems("python", BARE))
    assert "requirements-sglang.txt" in said and "g++" in said and "Python.h" in said


def test_ninja_is_searched_where_the_engine_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_ask", lambda python: [str(tmp_path), "True"])
    python, ninja = str(tmp_path / "bin" / "python"), tmp_path / "bin" / "ninja"
    assert any(one.startswith(f"no ninja: {python} -m pip install") for one in problems(python, BARE))
    ninja.parent.mkdir()
    ninja.write_text("")
    ninja.chmod(0o755)
    assert "no ninja" not in " ".join(problems(python, BARE))


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Creates the driver's library as on a machine without its headers."""
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
def test_no_link_is_created_if_the_linker_finds_the_driver_or_none_exists(
    python_with_nvcc: str, tmp_path: Path, driver: Path, there: str
) -> None:
    if there:
        (driver.parent / there).write_text("")
    else:
        driver.unlink()
    compiler_environment(python_with_nvcc, BARE)
    assert not (tmp_path / "nvidia" / "cu13" / "lib" / "stubs").exists()


def test_a_python_that_cannot_run_is_reported() -> None:
    assert "SGLANG_PYTHON" in problems("/nonexistent/python", BARE)[0]


def test_a_link_that_cannot_be_created_is_reported_with_a_remedy(
    python_with_nvcc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: str) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(ConfigError, match="CUDA_HOME"):
        compiler_environment(python_with_nvcc, BARE)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_an_engines_packages_include_a_compiler_for_their_torchs_cuda(engine: str) -> None:
    lines = (ROOT / "instructions" / "locks" / f"{engine}.txt").read_text().splitlines()
    locked = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = (ROOT / "instructions" / f"requirements-{engine}.txt").read_text()
    parts = ("nvidia-cuda-runtime", *toolchain.PACKAGES.split())
    assert {locked[name].rsplit(".", 1)[0] for name in parts} == {"13.0"}
    assert all(f"{name}==13.0.*" in wanted for name in parts[1:])


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its packages are for Linux on x86-64")
@pytest.mark.timeout(300)
def test_the_packaged_compiler_builds_and_links_a_kernel_for_an_h100(tmp_path: Path) -> None:
    """As SGLang calls it: -L$CUDA_HOME/lib64 -lcudart, with headers of <cuda/std/...>."""
    environment = compiler_environment(sys.executable, BARE)
    assert environment, f"{toolchain.PACKAGES} are in tests/requirements-compiler.txt"
    home = packaged_home(sys.executable)
    (tmp_path / "kernel.cu").write_text(KERNEL)
    command = [f"{home}/bin/nvcc", "-arch=sm_90a", "-std=c++20", "-Xcompiler", "-fPIC", "-shared"]
    command += ["-o", "kernel.so", "kernel.cu", f"-L{environment['CUDA_HOME']}/lib64", "-lcudart"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "kernel.so").stat().st_size > 0
