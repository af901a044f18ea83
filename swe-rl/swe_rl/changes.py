"""Checks the files that a patch changes: names that shadow modules of the tests, links, compiled code, and source
that accesses the test runner."""

from __future__ import annotations

import ast
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from slime.sandbox import Workspace
from swe_rl.patch import PatchPolicy, is_test

Entry = tuple[int, int, int, int]
"""State of a file or folder: mode, inode, bytes, time of the last change in ns."""
LONGEST_SOURCE = 4 << 20
RUNS_TESTS = frozenset(
    (
        "pytest",
        "_pytest",
        "py",
        "pluggy",
        "iniconfig",
        "packaging",
        "pygments",
        "tomli",
        "exceptiongroup",
        "typing_extensions",
        "verdicts",
        "xdist",
        "nose",
        "hypothesis",
        "mock",
        "numpy",
        "attr",
        "setuptools",
        "pkg_resources",
        "pip",
        "wheel",
        "sitecustomize",
        "usercustomize",
        "distutils",
        "imp",
        "site",
    )
)
"""Top-level names, in addition to the standard library's, that tests or their runner import."""
COMPILED = (".pyc", ".pyo", ".so", ".pyd", ".dll", ".dylib")
MACHINERY = frozenset(
    (
        "pytest",
        "_pytest",
        "unittest",
        "pluggy",
        "_getframe",
        "currentframe",
        "f_back",
        "f_globals",
        "f_locals",
        "f_code",
        "gi_frame",
        "tb_frame",
        "get_objects",
        "get_referrers",
        "get_referents",
        "settrace",
        "setprofile",
        "addaudithook",
        "meta_path",
        "path_hooks",
        "ctypes",
        "__builtins__",
        "builtins",
        "__import__",
        "co_consts",
    )
)
"""Names with which code can access the interpreter's internals, its caller, or the test runner."""
MODULES = "sys.modules"
_CODE = re.compile(
    rb"\b(?:" + b"|".join(sorted(name.encode() for name in MACHINERY)) + rb"|sys\.modules)\b|/proc/"
)


def entries_of(workspace: Workspace) -> dict[str, Entry]:
    """Returns all files, folders and links of a workspace by path, without the repository's own .git. No sandbox may
    use the workspace meanwhile."""
    entries: dict[str, Entry] = {}
    for folder, folders, files in os.walk(workspace.path):
        below = os.path.relpath(folder, workspace.path)
        if below == ".":
            folders[:] = [name for name in folders if name != ".git"]
        for name in (*folders, *files):
            about = os.lstat(os.path.join(folder, name))
            path = name if below == "." else f"{below}/{name}"
            size = 0 if stat.S_ISDIR(about.st_mode) else about.st_size
            time = 0 if stat.S_ISDIR(about.st_mode) else about.st_mtime_ns
            entries[path] = (about.st_mode, about.st_ino, size, time)
    return entries


def changed(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> list[str]:
    """Returns paths that are new, deleted or different."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def complaint_of(
    policy: PatchPolicy,
    before: Mapping[str, Entry],
    workspace: Workspace,
    test_files: frozenset[str],
    installed: frozenset[str],
) -> str | None:
    """Returns why a patch is rejected, or None.

    Args:
        before: entries of the workspace without the patch.
        installed: top-level names that tests can import in addition to the repository's.
    """
    after = entries_of(workspace)
    files = changed(before, after)
    if not files:
        return "the patch changes nothing"
    for file in files:
        if complaint := policy.complaint_of_file(file, test_files):
            return complaint
        if file in after and not stat.S_ISREG(after[file][0]) and not stat.S_ISDIR(after[file][0]):
            return "links are not graded"
        if policy.configuration and file.lower().endswith(COMPILED):
            return f"{file} is compiled code, which is not graded"
    if policy.configuration:
        for file in files:
            if (
                file in after
                and file not in before
                and (shadowed := _shadowed(file, before, after, installed))
            ):
                return f"{file} takes the place of {shadowed} when tests import it"
    return None


def any_named(workspace: Workspace, before: Mapping[str, Entry]) -> dict[str, str]:
    """Returns the names of MACHINERY in the source files that a patch changed, with their files."""
    after = entries_of(workspace)
    return {
        name: file
        for file in changed(before, after)
        if file in after and stat.S_ISREG(after[file][0]) and file.endswith(".py")
        for name in named_in(_text(workspace, file))
    }


def reaching(named: Mapping[str, str], base: Workspace) -> str | None:
    """Returns the first name that no source file of the repository used before, with its file."""
    left = dict(named)
    for file, entry in entries_of(base).items():
        if left and file.endswith(".py") and stat.S_ISREG(entry[0]) and not is_test(PurePosixPath(file)):
            for name in named_in(_text(base, file)):
                left.pop(name, None)
    for name, file in left.items():
        return f"{file} names {name}, which accesses the test runner"
    return None


def named_in(source: bytes) -> set[str]:
    """Returns the names of MACHINERY in code, including its strings but not comments and docstrings."""
    if not _CODE.search(source):
        return set()
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):  # code for another Python version, or not Python
        return {match.decode() for match in _CODE.findall(source)}
    return {
        name
        for node in ast.walk(tree)
        for name in _names(node)
        if name in MACHINERY or name in ("/proc/", MODULES)
    }


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
        if node.attr == "modules" and isinstance(node.value, ast.Name) and node.value.id == "sys":
            yield MODULES
    elif isinstance(node, ast.alias):
        yield from node.name.split(".")
    elif isinstance(node, ast.ImportFrom):
        yield from (node.module or "").split(".")
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield "/proc/" if node.value.startswith("/proc/") else node.value
        yield from node.value.split(".") if " " not in node.value else ()


def _text(workspace: Workspace, file: str) -> bytes:
    try:
        return workspace.read(file, LONGEST_SOURCE)
    except OSError:
        return b""


def _shadowed(
    file: str, before: Mapping[str, Entry], after: Mapping[str, Entry], installed: frozenset[str]
) -> str | None:
    """Returns the module whose import a new file or folder would shadow. A folder without an __init__.py may become a
    search path for modules."""
    path = PurePosixPath(file)
    folder = "" if str(path.parent) == "." else f"{path.parent}/"
    if f"{folder}__init__.py" in before and f"{folder}__init__.py" in after:
        return None
    is_folder = stat.S_ISDIR(after[file][0])
    if not is_folder and path.suffix != ".py":
        return None
    name = path.name if is_folder else path.name.split(".")[0]
    if is_folder and not any(one.startswith(f"{file}/") and one.endswith(".py") for one in after):
        return None
    if name in sys.stdlib_module_names or name in RUNS_TESTS or name in installed:
        return f"the module {name}"
    places = {folder, "", "src/", "lib/"} if folder in ("", "src/", "lib/") else {folder}
    others = {f"{place}{name}{end}" for place in places for end in ("", ".py")} - {file}
    return next(iter(sorted(others & before.keys() & after.keys())), None)


def top_names(folder: Path) -> frozenset[str]:
    """Returns names of modules and packages in a local folder."""
    try:
        return frozenset(
            entry.name.split(".")[0]
            for entry in os.scandir(folder)
            if entry.name.endswith((".py", ".so")) or (entry.is_dir() and entry.name.isidentifier())
        )
    except OSError:
        return frozenset()
