"""One command for all programs of the runtime: `claw COMMAND ...`, or `python -m openclaw COMMAND ...`.

In a clone, `./claw` does the same in the clone's own environment, and `./claw start` and `./claw demo` train too.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence

from openclaw import __version__

COMMANDS = {
    "serve": ("openclaw.server", "serve a model and record its conversations"),
    "chat": ("openclaw.chat", "talk to it in the terminal"),
    "watch": ("openclaw.chat", "follow the turns of all clients"),
    "connect": ("openclaw.connect", "let a client use it; --remove undoes that"),
    "progress": ("openclaw.progress", "measure what the model learned and kept"),
    "versions": ("openclaw.versions", "weight versions: list, show, pin, go back"),
    "forget": ("openclaw.forget", "delete everything of a person, or one wish (--wish N)"),
    "page": ("openclaw.page", "the page of a run that has ended"),
    "store": ("openclaw.store", "export, import, delete what is stored"),
    "judge": ("openclaw.judge", "judge a file of turns"),
    "judge-worker": ("openclaw.judge.worker", "run a judge worker on a store"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: the command's; 2 for an unknown one."""
    words = list(sys.argv[1:] if argv is None else argv)
    command = words.pop(0) if words else "help"
    if command in ("--version", "version"):
        print(f"OpenClaw-RL {__version__}")
        return 0
    if command in ("help", "-h", "--help"):
        print(_usage())
        return 0
    if command not in COMMANDS:
        print(f"error: there is no command {command}\n{_usage()}", file=sys.stderr)
        return 2
    sys.argv = [f"claw {command}", *(["--watch"] if command == "watch" else []), *words]
    # with alter_sys, sys.modules has the program as __main__, by which its dataclasses find the types of their fields
    runpy.run_module(COMMANDS[command][0], run_name="__main__", alter_sys=True)
    return 0


def _usage() -> str:
    rows = [f"  claw {name:<14}{about}" for name, (_, about) in COMMANDS.items()]
    return "\n".join(["claw COMMAND ... (claw COMMAND --help: its flags; claw --version)", *rows])


if __name__ == "__main__":
    sys.exit(main())
