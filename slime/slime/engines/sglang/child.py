"""Runs in SGLang's Python: checks its flags, then becomes `sglang.launch_server`.

Imports only the standard library and SGLang. With `--check` as the first argument, it only checks. For a
rejected flag, it prints one line on stderr and exits with status 2.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import json
import runpy
import sys
from typing import NoReturn

OPTIONAL = ("--incremental-streaming-output",)
"""Flags omitted if the installed SGLang lacks them; events of a stream then repeat earlier tokens."""


def refuse(message: str) -> NoReturn:
    print(f"engine: {message}", file=sys.stderr, flush=True)
    sys.exit(2)


def installed_version() -> str:
    """Returns the version of SGLang in this Python."""
    try:
        return importlib.metadata.version("sglang")
    except importlib.metadata.PackageNotFoundError:
        refuse(f"{sys.executable} has no SGLang: install sglang there, or set SGLANG_PYTHON to its Python")


class Flags(argparse.ArgumentParser):
    """Parser with SGLang's flags; reports an invalid one in one line."""

    def __init__(self, version: str) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        self.version = version

    def error(self, message: str) -> NoReturn:
        refuse(f"SGLang {self.version}: {message}")


def taken_flags(version: str, words: list[str]) -> list[str]:
    """Returns the arguments without optional flags that the installed SGLang lacks; rejects other unknown
    flags."""
    try:
        from sglang.srt.server_args import ServerArgs
    except ImportError as error:
        refuse(f"cannot import SGLang {version} in {sys.executable}: {error}")
    parser = Flags(version)
    ServerArgs.add_cli_args(parser)
    known = [option for action in parser._actions for option in action.option_strings]
    words = [word for word in words if word not in OPTIONAL or word in known]
    _, unknown = parser.parse_known_args(words)
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        refuse(f"SGLang {version} has no flag {unknown[0]}{hint}")
    return words


def main(words: list[str]) -> None:
    version, only_check = installed_version(), words[:1] == ["--check"]
    words = taken_flags(version, words[only_check:])
    if only_check:
        print(json.dumps({"version": version}), flush=True)
        return
    sys.argv = ["sglang.launch_server", *words]
    runpy.run_module("sglang.launch_server", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
