"""Text that is not homework, from the standard library or generated: for the tokenizer, and for the context that
agents add to a question (long system messages, tools, dates, notes about the machine)."""

from __future__ import annotations

import functools
import inspect
import json
import pkgutil
import random
import string
from importlib import import_module

LONGEST = 6000  # characters of a long system message


@functools.cache
def docstrings(modules: int = 60) -> tuple[str, ...]:
    """Returns English with lists, code and names: docstrings of the standard library, sorted by name."""
    names = sorted(info.name for info in pkgutil.iter_modules() if info.name in _STDLIB)
    texts = []
    for name in names[:modules]:
        for _, member in sorted(inspect.getmembers(import_module(name)), key=lambda pair: pair[0]):
            text = inspect.getdoc(member) if inspect.isroutine(member) or inspect.isclass(member) else None
            if text and getattr(member, "__module__", None) == name:
                texts.append(text)
    return tuple(texts)


_STDLIB = frozenset(
    [
        "argparse",
        "ast",
        "asyncio",
        "base64",
        "bisect",
        "calendar",
        "cmd",
        "codecs",
        "collections",
        "configparser",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "email",
        "enum",
        "fnmatch",
        "fractions",
        "ftplib",
        "functools",
        "getpass",
        "glob",
        "gzip",
        "heapq",
        "html",
        "imaplib",
        "inspect",
        "io",
        "ipaddress",
        "json",
        "logging",
        "mailbox",
        "mimetypes",
        "optparse",
        "os",
        "pathlib",
        "pdb",
        "pickle",
        "platform",
        "pprint",
        "queue",
        "random",
        "sched",
        "secrets",
        "selectors",
        "shelve",
        "shlex",
        "shutil",
        "smtplib",
        "socket",
        "sqlite3",
        "statistics",
        "string",
        "subprocess",
        "tarfile",
        "tempfile",
        "textwrap",
        "threading",
        "timeit",
        "tokenize",
        "traceback",
        "typing",
        "unittest",
        "urllib",
        "uuid",
        "warnings",
        "wave",
        "weakref",
        "zipfile",
    ]
)


def random_tool(rng: random.Random) -> dict[str, object]:
    """Returns a function description as agents send it, with invented names."""
    words = (
        "file",
        "path",
        "read",
        "write",
        "message",
        "session",
        "command",
        "run",
        "text",
        "list",
        "limit",
        "name",
        "query",
        "url",
        "timeout",
        "memory",
        "search",
        "image",
        "content",
        "id",
        "agent",
        "status",
        "send",
        "cron",
    )
    kinds = ("string", "number", "boolean", "integer", "array", "object")

    def name() -> str:
        first, second = rng.sample(words, 2)
        return rng.choice((first, f"{first}_{second}", first + second.capitalize()))

    properties = {
        name(): {
            "type": rng.choice(kinds),
            "description": f"The {rng.choice(words)} of the {rng.choice(words)}",
        }
        for _ in range(rng.randint(1, 6))
    }
    parameters = {
        "type": "object",
        "properties": properties,
        "required": sorted(properties)[:1],
        "additionalProperties": False,
    }
    return {
        "type": "function",
        "function": {"name": name(), "description": f"{name()} tool", "parameters": parameters},
    }


def long_system_message(rng: random.Random) -> str:
    """Returns rules, tool descriptions and documentation, 200 to LONGEST characters, mostly short."""
    length = round(200 * (LONGEST / 200) ** rng.random())
    parts: list[str] = []
    while sum(map(len, parts)) < length:
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.choice(docstrings())[:800])
        elif kind < 0.7:
            parts.append("\n".join(json.dumps(random_tool(rng)) for _ in range(rng.randint(1, 4))))
        else:
            parts.append(_rules(rng))
    return "\n\n".join(parts)[:length]


def date_stamp(rng: random.Random) -> str:
    """Returns a client's prefix of a message, e.g. "[Mon 2026-03-09 08:15 UTC] "."""
    day = rng.choice(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"))
    date = f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return (
        f"[{day} {date} {rng.randint(0, 23):02}:{rng.randint(0, 59):02} {rng.choice(('UTC', 'CET', 'EST'))}] "
    )


def machine_note(rng: random.Random) -> str:
    """Returns a client's suffix of a message: facts about its machine."""
    names = (
        "agent",
        "session",
        "host",
        "os",
        "node",
        "model",
        "shell",
        "channel",
        "user",
        "id",
        "mode",
        "memory",
    )
    facts = [f"{name}={_made_up_word(rng)}" for name in rng.sample(names, rng.randint(3, 9))]
    return rng.choice(("Runtime: ", "Context: ", "Info: ")) + rng.choice((" | ", ", ", "; ")).join(facts)


def _rules(rng: random.Random) -> str:
    verbs = (
        "Read",
        "Write",
        "Use",
        "Never delete",
        "Check",
        "Ask before you send",
        "Keep",
        "Ignore",
        "Update",
        "List",
    )
    things = (
        "files",
        "the memory",
        "tools",
        "messages",
        "secrets",
        "the workspace",
        "notes",
        "sessions",
        "commands",
    )
    times = (
        "when asked",
        "first",
        "every day",
        "if you can",
        "before you answer",
        "in a group chat",
        "with care",
    )
    lines = [
        f"- {rng.choice(verbs)} {rng.choice(things)} {rng.choice(times)}." for _ in range(rng.randint(2, 8))
    ]
    return f"## {rng.choice(verbs)} {rng.choice(things)}\n" + "\n".join(lines)


def _made_up_word(rng: random.Random) -> str:
    word = "".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 8)))
    return rng.choice((word, f"{word}-{rng.randint(1, 999)}", f"{word}:{word}", str(rng.randint(1, 9999))))
