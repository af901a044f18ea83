"""Records tool states: runs the commands of commands.tsv, each in a fresh copy of a small project, and writes what
agents would be shown as labelled lines to standard output.

`python tests/openclaw/judge/data/recorded/made/record_commands.py > tool.jsonl`. Commands reach nothing but a local HTTP
server with made-up replies. A label `auto` follows the exit code; where the form shows none and nothing was printed,
it is 0."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from forms import FORMS, Result
from service import Replies

MADE = Path(__file__).parent
LONGEST_S = 40.0
LONGEST_OUTPUT = 4000
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Recorder:
    """Runs commands in copies of `template`; `ports`: real port to the one that is written down."""

    root: Path
    template: Path
    variables: dict[str, str]
    ports: dict[str, str]

    def run(self, command: str) -> Result:
        """The command's result in a fresh copy of the project."""
        folder = self.root / "project"
        subprocess.run(["chmod", "-R", "u+rw", folder], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder)
        os.utime(folder / ".git" / "index")
        limits = WITHOUT_RIGHTS if shutil.which("setpriv") and os.getuid() == 0 else []
        try:
            done = subprocess.run(
                [*limits, "bash", "-c", command],
                cwd=folder,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Result("", None)
        code = done.returncode if done.returncode >= 0 else 128 - done.returncode
        return Result(self.cleaned(done.stdout.decode(errors="replace")), code)

    def cleaned(self, text: str) -> str:
        """The text without names of this machine, colours, or its middle if it is long."""
        text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x00", "", text).replace("\r\n", "\n")
        text = text.replace(str(self.root / "home"), "/home/user").replace(str(self.root), "/home/user")
        text = text.replace(sys.prefix, "/home/user/.venv")
        text = text.replace(sys.base_prefix, "/usr")
        text = text.replace(os.path.expanduser("~"), "/home/user")
        for name in (self.variables["PLAIN_HOST"], "root"):
            text = re.sub(rf"\b{re.escape(name)}\b(?!-)", "user", text)
        text = text.replace("http://127.0.0.1:9/", "https://registry.example/")
        for real, shown in self.ports.items():
            text = text.replace(real, shown)
        if len(text) > LONGEST_OUTPUT:
            text = text[: LONGEST_OUTPUT // 2] + "\n... [output cut] ...\n" + text[-LONGEST_OUTPUT // 2 :]
        return text.strip("\n")


@contextlib.contextmanager
def recorder() -> Iterator[Recorder]:
    """A recorder with its project and its service."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Replies)
    Thread(target=server.serve_forever, daemon=True).start()
    closed, ssh, port = free_port(), free_port(), server.server_address[1]
    home = Path.home()
    kept = {
        "RUSTUP_HOME": home / ".rustup",
        "CARGO_HOME": home / ".cargo",
        "PLAIN_HOST": socket.gethostname(),
    }
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "template").mkdir()
        (root / "home").mkdir()
        variables = {
            "PATH": f"{Path(sys.executable).parent}:{home}/.cargo/bin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(root / "home"),
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "API": f"http://127.0.0.1:{port}",
            "CLOSED": f"http://127.0.0.1:{closed}",
            "SSHPORT": str(ssh),
            "npm_config_registry": "http://127.0.0.1:9/",
            "npm_config_fetch_retries": "0",
            "npm_config_update_notifier": "false",
            **{key: str(value) for key, value in kept.items()},
        }
        subprocess.run(["bash", MADE / "project.sh"], cwd=root / "template", env=variables, check=True)
        yield Recorder(
            root, root / "template", variables, {str(port): "8000", str(closed): "5001", str(ssh): "2222"}
        )
    server.shutdown()


def label_of(given: str, result: Result, *, code_is_shown: bool) -> int:
    """The label of the command's author, or the one that the exit code gives."""
    if given != "auto":
        return int(given)
    if not result.output and not code_is_shown:
        return 0
    return 1 if result.code == 0 else -1


def forms_of(number: int) -> list[tuple[str, str, Callable[[Result], str]]]:
    """The forms that a command is recorded in: as printed, with its code, or both."""
    plain = ("plain", "bash", lambda result: result.output)
    tool, form = FORMS[number % len(FORMS)]
    coded = (form.__name__, tool, form)
    kinds = [[plain, coded], [plain], [coded], [plain, coded], [coded]]
    return kinds[number % len(kinds)]


def main() -> None:
    with recorder() as machine, (MADE / "commands.tsv").open(encoding="utf-8") as table:
        for number, row in enumerate(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE)):
            result = machine.run(row["command"])
            written = row["command"]
            for name in ("API", "CLOSED", "SSHPORT"):
                written = written.replace(f"${name}", machine.cleaned(machine.variables[name]))
            for form, tool, render in forms_of(number):
                line = {
                    "id": f"tool{number:03d}-{form}",
                    "kind": "tool",
                    "language": "en",
                    "label": label_of(row["label"], result, code_is_shown=form != "plain"),
                    "asked": row["asked"],
                    "response": f"{tool}({json.dumps({'command': written})})",
                    "next": [{"role": "tool", "content": render(result)}],
                    "exit_code": result.code,
                }
                print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
