"""Command line for weight versions: python -m openclaw.versions COMMAND [--url URL]

Sends requests to a run's gateway. If the gateway has an admin key, it is read from OPENCLAW_ADMIN_KEY or the run
folder.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from claw_base.settings.command_line import parse_command
from claw_base.settings.declare import REQUIRED, check, flag
from openclaw.common.address import admin_key_for
from openclaw.common.version import VERSION
from openclaw.common.visible import visible
from openclaw.versions.comparison import as_text

TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class VersionsSettings:
    """Address of the gateway. Raises ConfigError."""

    url: str = flag("http://127.0.0.1:30000", "The server's address, default http://127.0.0.1:30000")
    adapter: str | None = flag(None, "Trained adapter (default: the model)")
    admin_key: str | None = flag(
        None,
        "Admin key of the server (default: the key in the run folder)",
        env=("OPENCLAW_ADMIN_KEY",),
        variable_only=True,
    )
    run_dir: str | None = flag(
        None, "Run folder that contains the key", env=("RUN_DIR",), unit="path", variable_only=True
    )

    def __post_init__(self) -> None:
        check(self)


class All(VersionsSettings):
    """list all versions, oldest first (default)"""


@dataclass(frozen=True, kw_only=True)
class One(VersionsSettings):
    """show one version: its measurements, and the reason if it was rejected"""

    version: int = flag(REQUIRED, "number of the version", positional=True)


@dataclass(frozen=True, kw_only=True)
class Rollback(One):
    """serve this version and continue training from it"""

    drop_turns: bool = flag(False, "exclude the samples of the undone versions from training")


class Pin(One):
    """serve this version and pause training until unpin"""


class Release(One):
    """return its quarantined samples to training"""


class Delete(One):
    """delete its quarantined samples"""


@dataclass(frozen=True, kw_only=True)
class Diff(VersionsSettings):
    """compare two versions: ancestors, measurements, answers to prompts"""

    a: int = flag(REQUIRED, "first version", positional=True)
    b: int = flag(REQUIRED, "second version", positional=True)
    prompts: Path | None = flag(
        None,
        'file with one prompt per line, sent to both versions: a text, or {"messages": [...]}',
        unit="path",
    )


class Unpin(VersionsSettings):
    """serve the newest weights again and resume training"""


COMMANDS: dict[str, type[VersionsSettings]] = {
    "list": All,
    "show": One,
    "rollback": Rollback,
    "pin": Pin,
    "release": Release,
    "delete": Delete,
    "diff": Diff,
    "unpin": Unpin,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 after success; 2 after an error, which is printed on stderr."""
    about = "Lists weight versions; rolls back to one, pins one, compares two."
    command, settings = parse_command(
        COMMANDS, argv, "python -m openclaw.versions", about, VERSION, VersionsSettings, "list"
    )
    try:
        print(visible(_run(command, settings)))
    except VersionsError as error:
        print(f"openclaw.versions: {error}", file=sys.stderr)
        return 2
    return 0


class VersionsError(Exception):
    """The server cannot be reached, or rejects a request; the message gives the reason."""


def _run(command: str, settings: VersionsSettings) -> str:
    match settings:
        case Diff():
            return as_text(_diff(settings))
        case All():
            return table(_call(settings, "GET", "/admin/versions"))
        case Rollback():
            path = f"/admin/versions/{settings.version}/rollback"
            answer = _call(settings, "POST", path, {"drop_turns": settings.drop_turns})
        case Delete():
            answer = _call(settings, "DELETE", f"/admin/versions/{settings.version}/quarantine")
        case Pin() | Release():
            answer = _call(settings, "POST", f"/admin/versions/{settings.version}/{command}", {})
        case One():
            return json.dumps(_call(settings, "GET", f"/admin/versions/{settings.version}"), indent=1)
        case _:
            answer = _call(settings, "POST", f"/admin/versions/{command}", {})
    return json.dumps(answer)


def _diff(settings: Diff) -> dict[str, Any]:
    path = "/admin/versions/diff"
    if settings.prompts is None:
        return _call(settings, "GET", f"{path}?a={settings.a}&b={settings.b}")
    return _call(
        settings, "POST", path, {"a": settings.a, "b": settings.b, "prompts": read_prompts(settings.prompts)}
    )


def read_prompts(path: Path) -> list[Any]:
    """Returns the prompts in a file, one a line. Raises VersionsError."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise VersionsError(f"--prompts {path} cannot be read: {error}") from error
    prompts: list[Any] = []
    for line in lines:
        try:
            prompt = json.loads(line)
        except ValueError:
            prompt = line
        has_messages = isinstance(prompt, dict) and "messages" in prompt
        prompts.append({"messages": prompt["messages"]} if has_messages else line)
    return prompts


def table(answer: dict[str, Any]) -> str:
    """Returns text with one line for each version."""
    lines = [f"live {answer['live']}" + ("" if answer["pinned"] is None else f", pinned {answer['pinned']}")]
    for one in answer["data"]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["created_at"]))
        parent = "-" if one["parent"] is None else one["parent"]
        notes = [one.get("reason") or one.get("undone") or ""]
        notes += [f"{one['quarantined']} samples in quarantine"] if one["quarantined"] else []
        disk = "on disk" if one["on_disk"] else ""
        note = "; ".join(filter(None, notes))
        lines.append(
            f"{one['version']:>5}  from {parent:>4}  {one['status']:<11}  {when}  {disk:<7}  {note}".rstrip()
        )
    return "\n".join(lines)


def _call(
    settings: VersionsSettings, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    url = settings.url.rstrip("/").removesuffix("/v1")
    key = admin_key_for(url, settings.admin_key, settings.run_dir)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
            params = None if settings.adapter is None else {"adapter": settings.adapter}
            answer = http.request(method, path, json=body, params=params)
    except UnicodeEncodeError as error:
        raise VersionsError(
            "the admin key (OPENCLAW_ADMIN_KEY) contains characters that are not allowed in an HTTP header"
        ) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise VersionsError(f"no answer from {url} ({error or type(error).__name__}); give --url") from error
    try:
        content = answer.json() if answer.content else {}
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise VersionsError(f"{url} is not a server of OpenClaw-RL: {answer.text[:80]!r}; give --url")
    if answer.status_code not in (200, 202):
        error_body = content.get("error")
        reason = error_body.get("message") if isinstance(error_body, dict) else f"HTTP {answer.status_code}"
        raise VersionsError(str(reason))
    return content


if __name__ == "__main__":
    sys.exit(main())
