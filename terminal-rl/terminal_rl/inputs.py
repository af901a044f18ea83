"""Treats the agent's files as data: compares inputs by digest, and removes what makes git start programs by itself."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable

from slime.errors import SandboxError
from slime.sandbox import Workspace
from slime.sandbox.folders import TooLarge, folder, new_file, parts_of, read_file, remove

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
SHARED = frozenset(("objects", "refs"))
"""Names in the folder whose settings several working trees share: it needs no HEAD."""
HOOKS = frozenset(("post-index-change", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman"))
"""Programs in a repository that git starts when it refreshes its index or cleans up, as `git status` does. Others start
only when tests commit, push or the like; a task may ask for them."""


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
    """Removes from the git repositories in all folders of the workspace what makes git start a program although the
    tests only read: settings, and the hooks in HOOKS. Raises SandboxError if a file could not be replaced."""
    try:
        for path, _ in workspace.folders:
            for _, folders, files, here in os.fwalk(path):
                names = {*folders, *files}
                if "HEAD" in names or names >= SHARED:
                    for name in names & {"config", "config.worktree"}:
                        _clean(here, name)
                for name in names & HOOKS:
                    remove(here, name)
    except OSError as error:
        raise SandboxError(f"settings of git could not be replaced: {error}") from error


def _clean(here: int, name: str) -> None:
    """Removes a settings file that is too long, or of which nothing may be kept; else the lines that are not kept."""
    try:
        data = read_file(here, name, LONGEST_SETTINGS + 1)
    except OSError:  # a link, a pipe, a folder
        data = b""
    if not data or len(data) > LONGEST_SETTINGS or name != "config":
        remove(here, name)
        return
    text = data.decode(errors="replace")
    if (kept := kept_settings(text)) != text:
        with new_file(here, name, 0o644) as file:
            file.write(kept.encode())


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
