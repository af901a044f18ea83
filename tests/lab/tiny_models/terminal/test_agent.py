"""The tiny agent: chores and demonstrations before RL."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from claw_lab.tiny_models.recipe import make_tokenizer
from claw_lab.tiny_models.terminal.chores import (
    HELD_OUT_NAMES,
    SECONDS,
    TRAINED_NAMES,
    VERBS,
    chore,
    look_for,
)
from claw_lab.tiny_models.terminal.data import chores, write
from claw_lab.tiny_models.terminal.demonstrations import (
    CALL,
    FITTING,
    MISTAKEN,
    demonstration,
    mistaken,
    ran,
    start_of,
)
from claw_lab.tiny_models.terminal.make_model import RECIPE
from slime.agents import Task
from slime.agents.conversation import opening
from slime.rollout.tokenizer import ChatTokenizer
from slime.sandbox import Shells
from terminal_rl.system import LIMITS
from terminal_rl.tasks import FilesTask, task_of
from tests import ROOT
from tests.fakes.dry_run import bash

TINY_MODEL = ROOT / "terminal-rl/tiny_model"


def names(text: str) -> set[str]:
    return set(re.findall(r"\b\d[a-z]\d\b", text))


def test_names_of_held_out_chores_are_in_no_training_task_or_demonstration() -> None:
    assert len(HELD_OUT_NAMES) > 30 and not set(HELD_OUT_NAMES) & set(TRAINED_NAMES)
    for one in chores(200, 1):
        assert names(one.instruction + " ".join(one.files)) <= set(TRAINED_NAMES)
    for one in chores(64, 0, held_out=True):
        assert names(one.instruction + " ".join(one.files)) <= set(HELD_OUT_NAMES)
    rng = random.Random(3)
    for _ in range(300):
        shown = demonstration(rng)
        assert names(str(shown.start.messages) + str(shown.turns)) <= set(TRAINED_NAMES)


def test_demonstrations_show_a_wrong_command_twice_as_often_as_the_requested_one() -> None:
    rng, seen = random.Random(4), {verb: Counter[str]() for verb in VERBS}
    for _ in range(4000):
        shown = demonstration(rng)
        asked = str(shown.start.messages[0]["content"])
        [verb] = [name for name, about in VERBS.items() if asked.startswith(about.asks.split(" {")[0])]
        [program] = {
            name
            for name, about in VERBS.items()
            for turn in shown.turns
            if f'"command": "{about.command.split()[0]} ' in turn.text
        }
        seen[verb][program] += 1
    for verb, about in VERBS.items():
        total, alike = seen[verb].total(), sum(other.names == about.names for other in VERBS.values())
        assert seen[verb][verb] / total < FITTING + (1 - FITTING - MISTAKEN) / alike + 0.06 < 0.4, verb
        assert max(share for name, share in seen[verb].items() if name != verb) > 1.5 * seen[verb][verb], verb
    assert len({mistaken(verb).command for verb in VERBS.values()}) == len(VERBS)


def test_chore_files_are_reproducible(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        write(tmp_path / folder, 20, 8, seed=5)
    for file in ("train.jsonl", "heldout.jsonl"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_a_command_waiting_for_input_delays_its_episode_by_seconds_only() -> None:
    [asked] = chores(1, 0)
    assert task_of(Task("", metadata=asked.row()["metadata"]), None).agent_seconds == SECONDS < 10


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_commands_of_chores_produce_the_expected_files() -> None:
    rng, seen = random.Random(6), set()
    while len(seen) < len(VERBS):
        one = chore(rng)
        if one.verb in seen:
            continue
        seen.add(one.verb)
        task = FilesTask("", one.instruction, one.files, one.expected)
        with task.workspace() as workspace, Shells(workspace, LIMITS) as shells:
            assert not task.verdict(workspace).solved
            if one.word is not None:
                assert shells.execute("main", look_for(one.word)).text() == one.source
            assert shells.execute("main", one.commands[-1]).exit_code == 0
            assert task.verdict(workspace).solved, one


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
def test_demonstrations_show_the_shells_output_for_a_failing_command() -> None:
    files = {"1a1.txt": "red\n"}
    with FilesTask("", "", files, {}).workspace() as workspace, Shells(workspace, LIMITS) as shells:
        for name, verb in VERBS.items():
            source = "red" if verb.known else "1a1.txt"
            said = shells.execute("main", verb.command.format(source=source, target="2b2.txt"))
            assert (said.text() or "[no output]") == verb.shown(source, files), name


def test_a_call_is_two_tokens_and_its_command() -> None:
    tokenizer = ChatTokenizer(str(TINY_MODEL))
    first, *command, last = tokenizer.encode(ran(look_for("red"), "").text)
    assert [tokenizer.decode([first]), tokenizer.decode([last])] == list(CALL)
    assert tokenizer.decode(command) == look_for("red")


def test_the_recipe_reproduces_the_shipped_tokenizer_byte_for_byte(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, demonstration, RECIPE, random.Random("0 tokenizer"))
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (TINY_MODEL / made.name).read_bytes(), made.name


def test_the_tiny_model_is_small_and_matches_the_current_tools() -> None:
    assert sum(file.stat().st_size for file in TINY_MODEL.iterdir()) < 5 << 20
    tokenizer = ChatTokenizer(str(TINY_MODEL))
    [asked] = chores(1, 0, held_out=True)
    ids = opening(tokenizer, start_of(asked))
    assert tokenizer.decode(ids[2:4]).count("shell_") > 5 and len(ids) < 60


def test_the_tiny_script_describes_itself_and_rejects_another_environment() -> None:
    script = "terminal-rl/run_tiny_terminal_rl.sh"
    assert f"bash {script}" in bash(script, "--help").stdout
    assert "ENV_TYPE=gui: this script trains in terminals" in bash(script, ENV_TYPE="gui").stderr
    assert "contains no config.json" in bash(script, MODEL_PATH="/nowhere").stderr
