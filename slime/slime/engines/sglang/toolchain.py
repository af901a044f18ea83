"""The compiler of SGLang, which builds kernels with ninja and nvcc when it first computes (measured: 0.5.23, CUDA 13.0).

SGLang looks at CUDA_HOME, CUDA_PATH, PATH and /usr/local/cuda. Where none of them has nvcc, the packages of
instructions/requirements-sglang.txt have brought one into the engine's own Python; it needs a few links and CUDA_HOME.
`python -m slime.engines.sglang.toolchain PYTHON` says whether that Python's SGLang can build kernels.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from slime.engines.programs import search_path
from slime.errors import ConfigError

PACKAGES = "nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl"
SYSTEM_HOME = Path("/usr/local/cuda")
LINKED_FOLDERS = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
"""Where a linker looks for what no -L names."""
DRIVER_FOLDERS = (*LINKED_FOLDERS, "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")
"""Where systems and containers have the driver's own library."""
QUESTION = (
    "import pathlib, sysconfig; paths = sysconfig.get_paths(); "
    "print(paths['purelib']); print(pathlib.Path(paths['include'], 'Python.h').is_file())"
)
ASK_TIMEOUT = 60.0  # seconds


def compiler_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What the engine's environment needs more to find nvcc; empty where it finds one by itself, or there is none.

    Raises:
        ConfigError: the compiler's folder lacks a link and cannot be written to.
    """
    if system_compiler(environ) is not None:
        return {}
    home = packaged_home(python)
    if home is None:
        return {}
    _link(home / "lib64", "lib")
    for library in sorted((home / "lib").glob("libcudart.so.*")):
        _link(home / "lib" / "libcudart.so", library.name)
    if (driver := driver_library(environ)) is not None:
        _link(home / "lib64" / "stubs" / "libcuda.so", str(driver))
    for folder in (home / "bin", home / "nvvm" / "bin"):
        for program in folder.glob("*"):
            if program.is_file() and not os.access(program, os.X_OK):
                program.chmod(0o755)
    return {"CUDA_HOME": str(home)}


def system_compiler(environ: Mapping[str, str]) -> Path | None:
    """The nvcc that SGLang finds without help, in its order."""
    homes = [Path(environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name)]
    on_path = shutil.which("nvcc", path=environ.get("PATH", ""))
    for found in (*(home / "bin" / "nvcc" for home in homes), on_path, SYSTEM_HOME / "bin" / "nvcc"):
        if found is not None and os.access(found, os.X_OK):
            return Path(found)
    return None


def driver_library(environ: Mapping[str, str]) -> Path | None:
    """The driver's library, where it is known by its full name alone: -lcuda asks for libcuda.so, which a toolkit has in
    lib64/stubs and pip's packages have not. None: the linker finds one, or there is no driver."""
    linked = [*_folders(environ.get("LIBRARY_PATH", "")), *LINKED_FOLDERS]
    if any(Path(folder, "libcuda.so").is_file() for folder in linked):
        return None
    loaded = [*_folders(environ.get("LD_LIBRARY_PATH", "")), *DRIVER_FOLDERS]
    found = (Path(folder, "libcuda.so.1") for folder in loaded)
    return next((library for library in found if library.is_file()), None)


def packaged_home(python: str) -> Path | None:
    """The folder of the nvcc that pip put into this Python's packages; None: it has none, or cannot be run."""
    answer = _ask(python)
    return None if answer is None else _packaged_home(Path(answer[0]))


def problems(python: str, environ: Mapping[str, str]) -> list[str]:
    """What keeps SGLang in `python` from building kernels, each with what to do; empty if nothing does."""
    found, path = [], search_path(python, environ)
    answer = _ask(python)
    if answer is None:
        return [f"{python} cannot be run: set SGLANG_PYTHON to the Python that has SGLang"]
    if system_compiler(environ) is None and _packaged_home(Path(answer[0])) is None:
        found.append(
            f"no nvcc: {python} -m pip install -r instructions/requirements-sglang.txt brings one ({PACKAGES}); "
            "or install the CUDA toolkit"
        )
    if shutil.which("ninja", path=path) is None:
        found.append(f"no ninja: {python} -m pip install ninja, or apt-get install ninja-build")
    if not any(shutil.which(name, path=path) for name in ("c++", "g++")):
        found.append("no C++ compiler: apt-get install g++")
    if answer[1] != "True":
        found.append(
            "no Python.h of the engine's Python, which Triton compiles against: apt-get install python3-dev"
        )
    return found


def _packaged_home(packages: Path) -> Path | None:
    homes = sorted(packages.glob("nvidia/cu*/bin/nvcc"))
    return homes[-1].parent.parent if homes else None


def _ask(python: str) -> list[str] | None:
    try:
        done = subprocess.run(
            [python, "-c", QUESTION], capture_output=True, text=True, timeout=ASK_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.split("\n")


def _folders(words: str) -> list[str]:
    return [word for word in words.split(os.pathsep) if word]


def _link(link: Path, target: str) -> None:
    if link.exists():
        return
    try:
        link.parent.mkdir(exist_ok=True)
        if link.is_symlink():  # to where another machine has it
            link.unlink(missing_ok=True)
        link.symlink_to(target)
    except FileExistsError:  # another engine of this machine made it meanwhile
        return
    except OSError as error:
        raise ConfigError(
            f"SGLang's compiler needs the link {link} -> {target}, which cannot be made ({error}): "
            "make it as the owner of that folder, or set CUDA_HOME to a CUDA toolkit"
        ) from error


def main() -> int:
    found = problems(sys.argv[1] if len(sys.argv) > 1 else sys.executable, os.environ)
    print("\n".join(found) or "nvcc, ninja, C++ compiler and Python.h are there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
