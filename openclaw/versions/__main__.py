"""Command line for weight versions: python -m openclaw.versions COMMAND [--url URL]

Sends requests to a run's gateway; needs its admin key if it has one: OPENCLAW_ADMIN_KEY, or the key in the run
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
    """one version: why it was rejected, its measurements"""

    version: int = flag(REQUIRED, "number of the version", positional=True)


@dataclass(frozen=True, kw_only=True)
class Rollback(One):
    """serves this version from now on and trains on from it"""

    drop_turns: bool = flag(False, "never train the samples of the undone versions again")


class Pin(One):
    """serves this version; training waits until unpin"""


class Release(One):
    """its quarantined samples are ready to be trained on again"""


class Delete(One):
    """its quarantined samples are dropped for good"""


@dataclass(frozen=True, kw_only=True)
class Diff(VersionsSettings):
    """what lies between two versions, and what both answer"""

    a: int = flag(REQUIRED, "first version", positional=True)
    b: int = flag(REQUIRED, "second version", positional=True)
    prompts: Path | None = flag(
        None,
        'file with one prompt per line, sent to both versions: a text, or {"messages": [...]}',
        unit="path",
    )


class Unpin(VersionsSettings):
    """serves the newest weights again; training goes on"""


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
    """Returns the exit status: 0 done, 2 failed, with one line on stderr."""
    about = "Shows weight versions, goes back to one, pins one."
    command, asked = parse_command(
        COMMANDS, argv, "python -m openclaw.versions", about, VERSION, VersionsSettings, "list"
    )
    try:
        print(visible(_answer(command, asked)))
    except VersionsError as error:
        print(f"openclaw.versions: {error}", file=sys.stderr)
        return 2
    return 0


class VersionsError(Exception):
    """The server cannot be reached, or rejects a request; the message gives the reason."""


def _answer(command: str, asked: VersionsSettings) -> str:
    match asked:
        case Diff():
            return as_text(_compared(asked))
        case All():
            return table(_call(asked, "GET", "/admin/versions"))
        case Rollback():
            path = f"/admin/versions/{asked.version}/rollback"
            answer = _call(asked, "POST", path, {"drop_turns": asked.drop_turns})
        case Delete():
            answer = _call(asked, "DELETE", f"/admin/versions/{asked.version}/quarantine")
        case Pin() | Release():
            answer = _call(asked, "POST", f"/admin/versions/{asked.version}/{command}", {})
        case One():
            return json.dumps(_call(asked, "GET", f"/admin/versions/{asked.version}"), indent=1)
        case _:
            answer = _call(asked, "POST", f"/admin/versions/{command}", {})
    return json.dumps(answer)


def _compared(asked: Diff) -> dict[str, Any]:
    path = "/admin/versions/diff"
    if asked.prompts is None:
        return _call(asked, "GET", f"{path}?a={asked.a}&b={asked.b}")
    return _call(asked, "POST", path, {"a": asked.a, "b": asked.b, "prompts": read_prompts(asked.prompts)})


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
        known = isinstance(prompt, dict) and "messages" in prompt
        prompts.append({"messages": prompt["messages"]} if known else line)
    return prompts


def table(answer: dict[str, Any]) -> str:
    """Returns one line a version."""
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
            "the admin key (OPENCLAW_ADMIN_KEY) contains characters that no HTTP header can carry"
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
