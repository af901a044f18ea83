"""Images with a small repository, as in the benchmarks: a Python with pytest in an environment, and the tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from slime.sandbox.command import box_python
from swe_rl.repository import test_packages
from tests.slime.sandbox.images import PROGRAMS, copy_libraries, plain_tar, root_folder

CONDA = "opt/miniconda3/envs/testbed"
LEFT_OUT = (
    "test",
    "idlelib",
    "tkinter",
    "lib2to3",
    "ensurepip",
    "config-*",
    "*-packages",
    "turtledemo",
)
GIT = [
    "git",
    "-c",
    "user.name=a",
    "-c",
    "user.email=b",
    "-c",
    "init.defaultBranch=main",
    "-c",
    "safe.directory=*",
]
LOOK = "import json, sys, sysconfig; print(json.dumps([sys.prefix, sysconfig.get_paths()['stdlib'], sys.version[:4]]))"


def image_of_repository(
    folder: Path, files: dict[str, str], environment: str, further: dict[str, str] | None = None
) -> Path:
    """Returns an archive of an image with these files in /testbed, committed twice: the second commit is a future
    one.

    Args:
        environment: where in the image a Python with pytest is, as a virtual environment.
        further: files elsewhere in the image.
    """
    root = folder / "root"
    python = Path(box_python()[0]).resolve()
    root_folder(root, (*PROGRAMS, "grep", "sed"), further)
    _, library, version = json.loads(subprocess.check_output([python, "-I", "-c", LOOK], text=True))
    to, program = root / library.lstrip("/"), root / str(python).lstrip("/")
    shutil.copytree(library, to, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(python, program)
    for linked in (program, *(to / "lib-dynload").glob("*.so")):
        copy_libraries(linked, root)
    entered = root / environment
    (entered / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (entered / "bin" / name).symlink_to(python)
    (entered / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    shutil.copytree(test_packages(str(python)), entered / f"lib/python{version}/site-packages")
    for name, text in files.items():
        (root / "testbed" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "testbed" / name).write_text(text)
    for words in (
        ["init", "-q"],
        ["add", "-f", "--", *(name for name in files if not name.endswith(".so"))],
        ["commit", "-qm", "base"],
        ["commit", "-qm", "the repair", "--allow-empty"],
    ):
        subprocess.run(
            [*GIT, *words],
            cwd=root / "testbed",
            check=True,
            capture_output=True,
            env={"PATH": os.environ["PATH"]},
        )
    return plain_tar(root, folder / "image.tar")
