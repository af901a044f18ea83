"""The compiler for SGLang and vLLM, which build kernels with ninja and nvcc when they first compute.

Measured with SGLang 0.5.23 and CUDA 13.0.

Both use CUDA_HOME or CUDA_PATH, then nvcc on PATH, then /usr/local/cuda, regardless of version. If the compiler's
CUDA differs from that of the engine's torch, the kernels do not load. instructions/requirements-sglang.txt therefore
installs a matching compiler into the engine's own Python; it needs a few links and CUDA_HOME. `python -m
slime.engines.toolchain PYTHON` checks whether that Python's engine can build kernels.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slime.engines.programs import search_path
from slime.errors import ConfigError

PACKAGES = "nvidia-cuda-nvcc nvidia-cuda-crt nvidia-nvvm nvidia-cuda-cccl"
SYSTEM_HOME = Path("/usr/local/cuda")
HOMES = ("CUDA_HOME", "CUDA_PATH")
"""Environment variables with the folder of a toolkit, in order of priority."""
LINKED_FOLDERS = (f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
"""Folders that a linker searches by default."""
DRIVER_FOLDERS = (*LINKED_FOLDERS, "/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")
"""Folders of the driver's own library, in systems and containers."""
QUESTION = (
    "import pathlib, sysconfig; paths = sysconfig.get_paths(); "
    "print(paths['purelib']); print(pathlib.Path(paths['include'], 'Python.h').is_file())"
)
ASK_TIMEOUT = 60.0  # seconds
Version = tuple[int, int]


@dataclass(frozen=True)
class Compiler:
    """A compiler. `home`: the toolkit's folder; `version`: its nvcc's version, None if unknown."""

    home: Path
    version: Version | None

    def fits(self, cuda: Version | None) -> bool:
        """Returns whether it can build for a torch of this CUDA version: same major version, and not older.

        Unknown versions are accepted.
        """
        if self.version is None or cuda is None:
            return True
        return self.version[0] == cuda[0] and self.version >= cuda


@dataclass(frozen=True)
class Choice:
    """The compiler for an engine.

    Attributes:
        compiler: None if none can be used.
        default: the compiler that the engine would choose itself.
        cuda: CUDA version of its torch.
        packaged: pip installed the compiler.
    """

    compiler: Compiler | None
    default: Compiler | None
    cuda: Version | None
    packaged: bool


def compiler_environment(python: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with which an engine finds an nvcc that fits its torch.

    Returns {} if it finds one anyway, or there is none.

    Raises:
        ConfigError: the compiler's folder lacks a link and cannot be written to.
    """
    answer = _ask(python)
    packages = None if answer is None else Path(answer[0])
    chosen = choose(packages, environ)
    if chosen.compiler is None or chosen.compiler == chosen.default:
        return {}
    home = chosen.compiler.home
    if chosen.packaged:
        _complete(home, environ)
    return {name: str(home) for name in HOMES if name == HOMES[0] or environ.get(name)}


def choose(packages: Path | None, environ: Mapping[str, str]) -> Choice:
    """Returns the compiler for the engine with these packages.

    In order: a system toolkit that fits its torch, the one installed by pip, a system toolkit of the same
    major version.
    """
    cuda = None if packages is None else cuda_of(packages)
    homes = list(_system_homes(environ))
    there = [Compiler(home, nvcc_version(home)) for home in homes if _has_nvcc(home)]
    preferred = there[0] if there and there[0].home == homes[0] else None
    if fitting := [one for one in there if one.fits(cuda)]:
        return Choice(fitting[0], preferred, cuda, False)
    home = None if packages is None else _packaged_home(packages)
    if home is not None:
        return Choice(Compiler(home, nvcc_version(home)), preferred, cuda, True)
    near = [one for one in there if one.version and cuda and one.version[0] == cuda[0]]
    return Choice(near[0] if near else None, preferred, cuda, False)


def cuda_of(packages: Path) -> Version | None:
    """Returns the CUDA version of the torch in these packages; None without torch, or for a CPU build."""
    try:
        text = (packages / "torch" / "version.py").read_text()
    except OSError:
        return None
    match = re.search(r"""^cuda\b[^=]*=\s*['"](\d+)\.(\d+)""", text, re.M)
    return None if match is None else (int(match[1]), int(match[2]))


def nvcc_version(home: Path) -> Version | None:
    """Returns the version printed by a toolkit's nvcc."""
    try:
        done = subprocess.run(
            [str(home / "bin" / "nvcc"), "--version"], capture_output=True, text=True, timeout=ASK_TIMEOUT
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"release (\d+)\.(\d+)", done.stdout)
    return None if match is None else (int(match[1]), int(match[2]))


def _system_homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yields the system's toolkits in the engines' order; of CUDA_HOME and CUDA_PATH only the first that is
    set."""
    if named := next((environ[name] for name in HOMES if environ.get(name)), ""):
        yield Path(named)
    if (on_path := shutil.which("nvcc", path=environ.get("PATH", ""))) is not None:
        yield Path(on_path).parent.parent
    yield SYSTEM_HOME


def _has_nvcc(home: Path) -> bool:
    return os.access(home / "bin" / "nvcc", os.X_OK)


def _complete(home: Path, environ: Mapping[str, str]) -> None:
    """Adds the links and file modes of a toolkit to pip's compiler."""
    _link(home / "lib64", "lib")
    for library in sorted((home / "lib").glob("libcudart.so.*")):
        _link(home / "lib" / "libcudart.so", library.name)
    if (driver := driver_library(environ)) is not None:
        _link(home / "lib64" / "stubs" / "libcuda.so", str(driver))
    for folder in (home / "bin", home / "nvvm" / "bin"):
        for program in folder.glob("*"):
            if program.is_file() and not os.access(program, os.X_OK):
                program.chmod(0o755)


def driver_library(environ: Mapping[str, str]) -> Path | None:
    """Returns the driver's library if only its full name exists; None if the linker finds it or there is no
    driver.

    -lcuda needs libcuda.so, which a toolkit has in lib64/stubs and pip's packages lack.
    """
    linked = [*_folders(environ.get("LIBRARY_PATH", "")), *LINKED_FOLDERS]
    if any(Path(folder, "libcuda.so").is_file() for folder in linked):
        return None
    loaded = [*_folders(environ.get("LD_LIBRARY_PATH", "")), *DRIVER_FOLDERS]
    files = (Path(folder, "libcuda.so.1") for folder in loaded)
    return next((library for library in files if library.is_file()), None)


def packaged_home(python: str) -> Path | None:
    """Returns the folder of the nvcc that pip installed into this Python; None without one."""
    answer = _ask(python)
    return None if answer is None else _packaged_home(Path(answer[0]))


def problems(python: str, environ: Mapping[str, str]) -> list[str]:
    """Returns the problems that prevent the engine in `python` from building kernels, with remedies; [] if
    none."""
    lines, path = [], search_path(python, environ)
    answer = _ask(python)
    if answer is None:
        return [f"{python} cannot be run: set SGLANG_PYTHON to the Python that has SGLang"]
    chosen = choose(Path(answer[0]), environ)
    if chosen.compiler is None:
        lines.append(
            f"no nvcc{_left_out(chosen)}: {python} -m pip install -r instructions/requirements-sglang.txt installs one "
            f"({PACKAGES}); or install the CUDA toolkit{' ' + _written(chosen.cuda) if chosen.cuda else ''}"
        )
    if shutil.which("ninja", path=path) is None:
        lines.append(f"no ninja: {python} -m pip install ninja, or apt-get install ninja-build")
    if not any(shutil.which(name, path=path) for name in ("c++", "g++")):
        lines.append("no C++ compiler: apt-get install g++")
    if answer[1] != "True":
        lines.append(
            "no Python.h of the engine's Python, which Triton compiles against: apt-get install python3-dev"
        )
    return lines


def found_compiler(python: str, environ: Mapping[str, str]) -> str:
    """Returns a description of the engine's compiler and of its torch's CUDA version."""
    answer = _ask(python)
    chosen = choose(None if answer is None else Path(answer[0]), environ)
    if chosen.compiler is None:
        return "no nvcc"
    other = _left_out(chosen) if chosen.default and chosen.default != chosen.compiler else ""
    torch = "" if chosen.cuda is None else f" for a torch of CUDA {_written(chosen.cuda)}"
    return f"nvcc {_written(chosen.compiler.version)} in {chosen.compiler.home}{other}{torch}"


def _left_out(chosen: Choice) -> str:
    if chosen.default is None:
        return ""
    return f" (nvcc {_written(chosen.default.version)} in {chosen.default.home} is for another CUDA version)"


def _written(version: Version | None) -> str:
    return "of unknown version" if version is None else ".".join(map(str, version))


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
        if link.is_symlink():  # a link to the location on another machine
            link.unlink(missing_ok=True)
        link.symlink_to(target)
    except FileExistsError:  # another engine of this machine has created it meanwhile
        return
    except OSError as error:
        raise ConfigError(
            f"the engine's compiler needs the link {link} -> {target}, which cannot be created ({error}): "
            "create it as the owner of that folder, or set CUDA_HOME to a CUDA toolkit"
        ) from error


def main() -> int:
    python = sys.argv[1] if len(sys.argv) > 1 else sys.executable
    lines = problems(python, os.environ)
    print(
        "\n".join(lines)
        or f"{found_compiler(python, os.environ)}; ninja, C++ compiler and Python.h are installed"
    )
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
