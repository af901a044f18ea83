"""Weight versions at the command line: python -m openclaw.versions COMMAND [--url URL]

Asks the gateway of a run; needs its admin key (OPENCLAW_ADMIN_KEY) where it has one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from claw_base.settings import command_line
from claw_base.settings.declare import check, flag
from openclaw.common.version import add_version
from openclaw.errors import ConfigError
from openclaw.versions.comparison import as_text

TIMEOUT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class VersionsSettings:
    """Where to ask. Raises ConfigError."""

    url: str = flag("http://127.0.0.1:30000", "The server's address, default http://127.0.0.1:30000")
    admin_key: str | None = flag(
        None, "The server's admin key, where it has one", env=("OPENCLAW_ADMIN_KEY",), variable_only=True
    )

    def __post_init__(self) -> None:
        check(self)


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m openclaw.versions", description="Shows weight versions, goes back to one, pins one."
    )
    add_version(parser)
    parser.add_argument("--url", default=None, help="the server's address, default http://127.0.0.1:30000")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="all versions, oldest first; what is done where no command is given")
    for name, text in (
        ("show", "one version: why it was rejected, what was measured"),
        ("rollback", "serves this version from now on and trains on from it"),
        ("pin", "serves this version; training waits until unpin"),
        ("release", "its quarantined samples are ready to be trained on again"),
        ("delete", "its quarantined samples are dropped for good"),
    ):
        one = commands.add_parser(name, help=text)
        one.add_argument("version", type=int)
        if name == "rollback":
            one.add_argument("--drop-turns", action="store_true", help="what is undone is not learned again")
    diff = commands.add_parser("diff", help="what lies between two versions, and what both answer")
    diff.add_argument("version", type=int, metavar="A")
    diff.add_argument("other", type=int, metavar="B")
    diff.add_argument(
        "--prompts",
        type=Path,
        help='file that both answer, a prompt a line: a text, or {"messages": [...]} as in --gate-data',
    )
    commands.add_parser("unpin", help="serves the newest weights again; training goes on")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 not possible, with one line on stderr."""
    args = build_parser().parse_args(argv)
    try:
        settings = command_line.load(VersionsSettings, {"url": args.url} if args.url else {})
        print(_answer(args, settings))
    except (ConfigError, VersionsError) as error:
        print(f"openclaw.versions: {error}", file=sys.stderr)
        return 2
    return 0


class VersionsError(Exception):
    """The server cannot be reached, or refuses; the message says why."""


def _answer(args: argparse.Namespace, settings: VersionsSettings) -> str:
    path = f"/admin/versions/{args.version}" if "version" in args else "/admin/versions"
    match args.command or "list":
        case "list":
            return table(_call(settings, "GET", path))
        case "show":
            return json.dumps(_call(settings, "GET", path), indent=1)
        case "diff":
            return as_text(_compared(args, settings))
        case "delete":
            found = _call(settings, "DELETE", f"{path}/quarantine")
        case "rollback":
            found = _call(settings, "POST", f"{path}/rollback", {"drop_turns": args.drop_turns})
        case command:
            found = _call(settings, "POST", f"{path}/{command}", {})
    return json.dumps(found)


def _compared(args: argparse.Namespace, settings: VersionsSettings) -> dict[str, Any]:
    path = "/admin/versions/diff"
    if args.prompts is None:
        return _call(settings, "GET", f"{path}?a={args.version}&b={args.other}")
    body = {"a": args.version, "b": args.other, "prompts": read_prompts(args.prompts)}
    return _call(settings, "POST", path, body)


def read_prompts(path: Path) -> list[Any]:
    """A prompt a line. Raises VersionsError."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise VersionsError(f"--prompts {path} cannot be read: {error}") from error
    found: list[Any] = []
    for line in lines:
        try:
            given = json.loads(line)
        except ValueError:
            given = line
        known = isinstance(given, dict) and "messages" in given
        found.append({"messages": given["messages"]} if known else line)
    return found


def table(found: dict[str, Any]) -> str:
    """One line a version."""
    lines = [f"live {found['live']}" + ("" if found["pinned"] is None else f", pinned {found['pinned']}")]
    for one in found["data"]:
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
    headers = {"Authorization": f"Bearer {settings.admin_key}"} if settings.admin_key else {}
    url = settings.url.rstrip("/").removesuffix("/v1")
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
            answer = http.request(method, path, json=body)
    except UnicodeEncodeError as error:
        raise VersionsError("OPENCLAW_ADMIN_KEY holds letters that no HTTP header can carry") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise VersionsError(f"no answer from {url} ({error or type(error).__name__}); give --url") from error
    try:
        found = answer.json() if answer.content else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise VersionsError(f"{url} is no server of OpenClaw-RL: {answer.text[:80]!r}; give --url")
    if answer.status_code not in (200, 202):
        told = found.get("error")
        reason = told.get("message") if isinstance(told, dict) else f"HTTP {answer.status_code}"
        raise VersionsError(str(reason))
    return found


if __name__ == "__main__":
    sys.exit(main())
