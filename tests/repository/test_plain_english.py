"""Prose stays plain: vocabulary, length of help texts, and what a newcomer reads before the first source file."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT

WORDS = re.compile(
    r"(?i)\b(?:told|tells?|says?|said|heard|hears?|nobody|somebody|whoever|anew|beside|none where"
    r"|where (?:none|nothing|nobody))\b"
)
"""Words that CONTRIBUTING.md keeps out of prose about programs."""
NOUN_CLAUSES = re.compile(
    r"(?i)\bwhat (?:is|was|are|were|has|had|becomes?|became|stands?|stood|comes?|came|remains?|remained|goes|went"
    r"|happens?|happened|follows|followed)\b"
)
"""Clauses that stand for a noun ("what is live") instead of the noun ("the live version")."""
MOST_NOUN_CLAUSES = 0
UNNAMED = frozenset(
    ("found", "told", "said", "heard", "wanted", "given", "mine", "beside", "apart", "untold")
)
"""Names of values, fields and functions that state how a value was got, not what it is."""
MOST_UNNAMED = {"product": 1, "laboratory": 0}
ALLOWED = {
    "help texts": 0,
    "docstrings": 0,
    "messages": 0,
    "launch scripts": 3,
    "first pages": 0,
    "pages": 5,
}
"""Uses that are left. A number only falls: lower it with each removed word."""
FIRST_PAGES = (
    "README.md",
    "instructions/quick_start.md",
    "instructions/README.md",
    "instructions/architecture.md",
)
BEFORE_SOURCE = (
    "README.md",
    "instructions/README.md",
    "instructions/architecture.md",
    "openclaw/README.md",
    "slime/README.md",
)
README_WORDS, WORDS_BEFORE_SOURCE = 900, 3500
LONGEST_HELP, LONG_HELP, MOST_LONG = 25, 15, 0.05
"""Words of a help text; the share of texts that may have more than LONG_HELP."""
LONG_SENTENCE, MOST_LONG_SENTENCES = 25, 0.02
"""Words of a sentence in README and instructions; the share of sentences that may have more."""
MOST_LONG_IN_READMES = 0.035
"""The same share in the READMEs of folders."""
NOT_PROSE = "tests/"


@cache
def files(pattern: str) -> tuple[Path, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


@cache
def code() -> tuple[ast.Module, ...]:
    """Returns the syntax trees of all code except tests."""
    names = [path for path in files("*.py") if not str(path.relative_to(ROOT)).startswith(NOT_PROSE)]
    return tuple(ast.parse(path.read_text()) for path in names)


def help_texts() -> list[str]:
    """Returns the second argument of each `flag(...)` and each `help=...`."""
    return [text for tree in code() for node in ast.walk(tree) for text in _help(node)]


def _help(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    texts = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
    if isinstance(node.func, ast.Name) and node.func.id == "flag":
        texts += node.args[1:2]
    yield from (one.value for one in texts if isinstance(one, ast.Constant) and isinstance(one.value, str))


def docstrings() -> list[str]:
    """Returns the docstrings of modules, classes and functions, and the texts below constants and fields."""
    statements = (node for tree in code() for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return [
        node.value.value
        for node in statements
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def messages() -> list[str]:
    """Returns the texts that are raised, logged, printed or shown."""
    texts = []
    for tree in code():
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _speaks(node.func)):
                texts += [
                    part.value
                    for part in ast.walk(node)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
    return texts


def _speaks(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in (
        "debug",
        "info",
        "warning",
        "error",
        "exception",
        "print",
        "show",
        "die",
        "needs",
        "excludes",
    )


def scripts() -> list[str]:
    """Returns the comments and messages of shell scripts."""
    names = [*files("*.sh"), ROOT / "claw"]
    return [path.read_text() for path in names if not str(path.relative_to(ROOT)).startswith(NOT_PROSE)]


def pages(names: tuple[str, ...] | None = None) -> list[str]:
    """Returns the prose of pages, without code and quotations."""
    paths = [ROOT / name for name in names] if names else files("*.md")
    texts = [path.read_text() for path in paths if path.name != "CHANGELOG.md"]
    return [
        re.sub(r"```.*?```|`[^`\n]*`|\"[^\"\n]*\"|\]\([^)]*\)", " ", text, flags=re.DOTALL) for text in texts
    ]


PROSE = {
    "help texts": help_texts,
    "docstrings": docstrings,
    "messages": messages,
    "launch scripts": scripts,
    "first pages": lambda: pages(FIRST_PAGES),
    "pages": pages,
}


@pytest.mark.parametrize("kind", PROSE)
def test_the_vocabulary_is_plain(kind: str) -> None:
    words = [word for text in PROSE[kind]() for word in WORDS.findall(text)]
    assert len(words) <= ALLOWED[kind], (
        f"{kind}: {sorted(set(words))}; write what CONTRIBUTING.md, Style, says"
    )


def test_docstrings_name_their_subject() -> None:
    clauses = [clause for text in docstrings() for clause in NOUN_CLAUSES.findall(text)]
    assert len(clauses) <= MOST_NOUN_CLAUSES, clauses


def _names(node: ast.AST) -> Iterator[str]:
    """Yields the name that a node gives to a value, an argument, a field or a function."""
    match node:
        case (
            ast.Name(ctx=ast.Store(), id=name) | ast.Attribute(ctx=ast.Store(), attr=name) | ast.arg(arg=name)
        ):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield name


@pytest.mark.parametrize("part", MOST_UNNAMED)
def test_names_describe_their_values(part: str) -> None:
    places = []
    for path in files("*.py"):
        place = str(path.relative_to(ROOT))
        own = "laboratory" if place.startswith(("lab/", "openclaw-test/")) else "product"
        if own == part and "tests/" not in place:
            nodes = ast.walk(ast.parse(path.read_text()))
            names = [name for node in nodes for name in _names(node) if name.strip("_") in UNNAMED]
            places += [f"{place}: {name}" for name in names]
    assert len(places) <= MOST_UNNAMED[part], places


def test_help_texts_are_short() -> None:
    lengths = {text: len(text.split()) for text in help_texts()}
    assert len(lengths) > 500
    assert {text: words for text, words in lengths.items() if words > LONGEST_HELP} == {}
    long = [text for text, words in lengths.items() if words > LONG_HELP]
    assert len(long) <= MOST_LONG * len(lengths), long


def test_a_newcomer_reads_few_words_before_the_first_source_file() -> None:
    words = {name: len((ROOT / name).read_text().split()) for name in BEFORE_SOURCE}
    assert words["README.md"] <= README_WORDS
    assert sum(words.values()) <= WORDS_BEFORE_SOURCE, words


def sentences(text: str) -> list[str]:
    """Returns the sentences of a page's paragraphs, list items and table cells; code in a line is one word."""
    text = re.sub(r"```.*?```|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "CODE", re.sub(r"\]\([^)]*\)", "]", text))
    text = re.sub(r"^#.*$|^\s*(?:[*-]|\d+\.)\s", "\n", text, flags=re.MULTILINE)
    blocks = re.split(r"\n\s*\n|\|", text)
    return [
        one for block in blocks for one in re.split(r"(?<=[.!?:])[\"*)]*\s+(?=[A-Z\"\[*(])", block.strip())
    ]


def long_sentences(paths: Sequence[Path]) -> tuple[list[str], int]:
    """Returns the different sentences of pages that are too long, and the number of all different ones."""
    words = {
        sentence: len(re.findall(r"\S*\w\S*", sentence))
        for path in paths
        if "zh-CN" not in path.name
        for sentence in sentences(path.read_text())
    }
    return [sentence for sentence, count in words.items() if count > LONG_SENTENCE], len(words)


def test_sentences_of_instructions_are_short() -> None:
    long, total = long_sentences([ROOT / "README.md", *(ROOT / "instructions").glob("*.md")])
    assert total > 1000
    assert len(long) <= MOST_LONG_SENTENCES * total, long


def test_sentences_of_readmes_are_short() -> None:
    long, total = long_sentences([path for path in files("*.md") if path.name == "README.md"])
    assert total > 3000
    assert len(long) <= MOST_LONG_IN_READMES * total, long
