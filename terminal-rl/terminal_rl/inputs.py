"""Treats the agent's files as data: compares inputs by digest, and removes git settings that start programs."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from slime.errors import SandboxError
from slime.sandbox import Workspace
from slime.sandbox.folders import TooLarge, folder, parts_of

LONGEST = 256 << 20
LONGEST_SETTINGS = 1 << 20
_SECTION = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]\s*$')
_SETTING = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$")
_CORE = frozenset(
    (
        "repositoryformatversion",
        "filemode",
        "bare",
        "logallrefupdates",
        "ignorecase",
        "precomposeunicode",
        "symlinks",
        "autocrlf",
        "eol",
        "quotepath",
        "abbrev",
        "compression",
        "sharedrepository",
        "excludesfile",
    )
)
_ALLOWED = {
    "core": _CORE,
    "extensions": frozenset(("objectformat",)),
    "remote": frozenset(("url", "pushurl", "fetch", "push", "mirror", "prune", "tagopt")),
    "branch": frozenset(("remote", "merge", "rebase", "description", "pushremote", "sort")),
    "submodule": frozenset(("url", "active", "path", "branch")),
    "merge": frozenset(("conflictstyle", "ff", "renames", "log")),
    "diff": frozenset(("renames", "algorithm", "context", "mnemonicprefix", "noprefix")),
    "tag": frozenset(("sort", "gpgsign")),
    "commit": frozenset(("gpgsign", "template", "verbose")),
    "user": None,
    "author": None,
    "committer": None,
    "alias": None,
    "init": frozenset(("defaultbranch",)),
    "pull": frozenset(("rebase", "ff")),
    "push": frozenset(("default", "followtags", "autosetupremote")),
    "rebase": frozenset(("autosquash", "autostash", "updaterefs")),
    "fetch": frozenset(("prune", "prunetags")),
    "color": None,
    "advice": None,
    "status": None,
    "gc": frozenset(("auto", "autodetach")),
    "rerere": None,
    "i18n": None,
}
"""Git settings that are kept, by section; None: all settings of a section. None of them starts a program by
itself."""


def digest(workspace: Workspace, path: str) -> str:
    """Returns the digest of a file, or of a folder with all names, types, permissions and contents. Links are not
    followed."""
    hasher = hashlib.sha256()
    parts = parts_of(path)
    try:
        with folder(workspace.root, parts[:-1]) as here:
            _add(hasher, here, parts[-1])
    except (OSError, TooLarge) as error:
        return f"{type(error).__name__}"
    return hasher.hexdigest()


def _add(hasher: hashlib._Hash, here: int, name: str) -> None:
    about = os.lstat(name, dir_fd=here)
    hasher.update(f"{name}\0{about.st_mode:o}\0".encode(errors="surrogateescape"))
    if stat.S_ISLNK(about.st_mode):
        hasher.update(os.readlink(name, dir_fd=here).encode(errors="surrogateescape"))
    elif stat.S_ISREG(about.st_mode):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=here), "rb") as file:
            hasher.update(hashlib.sha256(file.read(LONGEST)).digest())
    elif stat.S_ISDIR(about.st_mode):
        with folder(here, (name,)) as below:
            for entry in sorted(os.listdir(below)):
                _add(hasher, below, entry)
    hasher.update(b"\0end\0")


def changed_input(inputs: Iterable[str], workspace: Workspace, fresh: Workspace) -> str | None:
    """Returns the first input that has changed; None if none has."""
    return next((path for path in inputs if digest(workspace, path) != digest(fresh, path)), None)


def drop_programs_of_git(workspace: Workspace) -> None:
    """Removes all settings of the workspace's git repositories that start programs. Raises SandboxError if the
    settings could not be written."""
    try:
        for path in _settings_in(workspace.path):
            if path.endswith(".worktree"):
                workspace.remove(path)
            else:
                text = workspace.read(path, LONGEST_SETTINGS).decode(errors="replace")
                if (kept := kept_settings(text)) != text:
                    workspace.write(path, kept.encode())
    except (OSError, ValueError) as error:
        raise SandboxError(f"settings of git could not be read: {error}") from error


def _settings_in(root: Path) -> list[str]:
    """Returns the settings files next to a HEAD, at any depth."""
    return [
        os.path.relpath(os.path.join(here, name), root)
        for here, _, files in os.walk(root)
        if "HEAD" in files
        for name in ("config", "config.worktree")
        if name in files
    ]


def kept_settings(text: str) -> str:
    """Returns the allowed lines of a settings file; lines that are neither a section nor a setting are removed."""
    kept: list[str] = []
    section, dropped_on = "", False
    for line in text.splitlines():
        goes_on = len(line) - len(line.rstrip("\\"))
        if dropped_on:
            dropped_on = goes_on % 2 == 1
            continue
        if goes_on % 2 == 1:
            dropped_on = True
        elif not line.strip() or line.lstrip().startswith(("#", ";")):
            kept.append(line)
        elif match := _SECTION.match(line):
            section = match[1].lower()
            kept.append(line if section in _ALLOWED else f"# {section}")
        elif (match := _SETTING.match(line)) and section in _ALLOWED:
            allowed = _ALLOWED[section]
            if allowed is None or match[1].lower() in allowed:
                kept.append(line)
    return "\n".join(kept) + "\n"
