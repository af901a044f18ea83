"""Settings of a program: one dataclass gives the parser, the help and the checks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from claw_base.settings.command_line import add_flags, as_flags, load, parse, parse_command, parser_of
from claw_base.settings.declare import REQUIRED, flag, flags_of
from claw_base.settings.documents import table


@dataclass(frozen=True, kw_only=True)
class Server:
    """The server to use."""

    url: str = flag("http://here", "address of the server", env=("URL", "OTHER_URL"))


@dataclass(frozen=True, kw_only=True)
class Show(Server):
    """shows files"""

    files: list[Path] = flag(REQUIRED, "files to show", positional=True)
    hosts: tuple[str, ...] = flag((), "further hosts", env=("HOSTS",))
    count: int = flag(3, "how many", aliases=("-n",), least=1, most=9, unit="lines")
    form: Literal["text", "json"] = flag("text", "how it is written")
    key: str | None = flag(None, "key of the server", env=("KEY",), variable_only=True)


def shown(*words: str) -> Show:
    return parse(Show, words, "show", "Shows.")


def test_a_program_gets_its_settings_typed_and_checked() -> None:
    found = shown("a", "b", "--hosts", "x", "--hosts", "y", "-n", "4", "--form", "json")
    assert (found.files, found.hosts, found.count) == ([Path("a"), Path("b")], ("x", "y"), 4)
    assert (found.form, found.url) == ("json", "http://here")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "FILES"),
        (("a", "--count", "0"), "--count must be a number of lines from 1 to 9, got 0"),
        (("a", "--form", "xml"), "--form=xml is not one of text, json"),
        (("a", "--cou", "3"), "--cou"),
        (("a", "--key", "k"), "--key"),
    ],
)
def test_a_wrong_command_line_ends_with_status_2(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        shown(*words)
    assert left.value.code == 2 and message in capsys.readouterr().err


def test_flags_win_over_variables_and_an_empty_variable_is_not_set() -> None:
    given = vars(parser_of(Show, "show", "Shows.").parse_args(["a", "--url", "flag"]))
    assert load(Show, given, {"URL": "variable"}).url == "flag"
    given = vars(parser_of(Show, "show", "Shows.").parse_args(["a"]))
    found = load(Show, given, {"URL": "", "OTHER_URL": "variable", "HOSTS": "x, y", "KEY": "k"})
    assert (found.url, found.hosts, found.key) == ("variable", ("x", "y"), "k")


def test_a_program_with_subcommands_accepts_common_flags_before_them() -> None:
    def run(*words: str) -> tuple[str, Server]:
        commands: dict[str, type[Server]] = {"all": Server, "show": Show}
        return parse_command(commands, words, "run", "Runs.", common=Server, default="all")

    assert run("--url", "there") == ("all", Server(url="there"))
    assert run("--url", "there", "show", "a") == ("show", Show(url="there", files=[Path("a")]))
    with pytest.raises(SystemExit):
        run("hide")


def test_settings_are_passed_on_as_flags() -> None:
    found = Show(files=[Path("a")], hosts=("x", "y"), count=2, key="secret")
    words = as_flags(Server, vars(found)) + as_flags(Show, {"hosts": found.hosts, "key": found.key})
    assert words == ["--url", "http://here", "--hosts", "x", "--hosts", "y"]


def test_help_and_table_name_unit_default_bounds_and_variables(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        shown("--help")
    help = " ".join(capsys.readouterr().out.split())
    assert "--count LINES, -n LINES how many (default: 3) [from 1 to 9]" in help
    assert "--hosts HOSTS further hosts [env: HOSTS]" in help and "--key" not in help
    rows = table(flags_of(Show, inherited=True))
    assert rows[2] == "| `--url` | `URL`, `OTHER_URL` | str | `http://here` | address of the server |"
    assert "| — | `KEY` | str | — | key of the server |" in rows


def test_a_parser_may_accept_a_subset_of_the_flags() -> None:
    parser = parser_of(Server, "run", "Runs.")
    add_flags(parser, Show, ("count",))
    assert vars(parser.parse_args(["--count", "2"])) == {"url": None, "count": 2}


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of a file."""

    folder: Path | None = flag(None, "folder of the file", one_of="place")
    address: str | None = flag(None, "address of the file", one_of="place")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "one of the arguments --folder --address is required"),
        (("--folder", "a", "--address", "b"), "--address: not allowed with argument --folder"),
    ],
)
def test_exactly_one_flag_of_a_group_must_be_given(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse(Place, ["--address", "b"], "find", "Finds.") == Place(address="b")
    with pytest.raises(SystemExit) as left:
        parse(Place, words, "find", "Finds.")
    assert left.value.code == 2 and message in capsys.readouterr().err
