"""Creates the files for training the game on a laptop: words, tasks with held-out words, a tiny model that knows the
format.

`bash lab/run.sh tiny_models.verifiers_game WHAT ...`:

words FOLDER                 the words as nltk keeps them: FOLDER/corpora/words/en-basic
split ROWS.jsonl FOLDER      train.jsonl and heldout.jsonl, of different words
model ROWS.jsonl FOLDER      a Qwen3 of 0.3 million parameters that names letters by chance
result RUN SECONDS           one line about the evaluations of a run
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import statistics
import string
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slime.agents import Start

WORDS = Path(__file__).with_name("verifiers_game_words.txt").read_text().split()
HELD_OUT = 0.2
COLUMNS = re.compile(r"C\d\d")
SLIPS = 0.03  # of a demonstration's turns name a letter again
STEPS = 900
AGAIN = (
    "You attempted an invalid move. Reason: You guessed the letter '{}' which has already been guessed. Please "
    "resubmit a valid move and remember to follow the game rules to avoid penalties."
)
Row = dict[str, Any]


def word_of(row: Row) -> str:
    """Returns the word that a task's seed selects. Raises ValueError if the task's board has another length."""
    word = random.Random(row["metadata"]["verifiers_task"]["info"]["seed"]).choice(WORDS)
    if len(word) != columns(row):
        raise ValueError(
            f"{row['metadata']['task_id']} is about another word than {word}: other words are installed"
        )
    return word


def columns(row: Row) -> int:
    return len(COLUMNS.findall(row["prompt"]))


def held_out(word: str) -> bool:
    return hashlib.sha256(word.encode()).digest()[0] < 256 * HELD_OUT


def board(letters: Iterable[str]) -> str:
    """Returns the board as the game draws it; "_" is an unknown letter."""
    cells = list(letters)
    return header(len(cells)) + "\n " + "".join(f" {cell}  " for cell in cells).rstrip()


def header(places: int) -> str:
    return " ".join(f"C{place:02}" for place in range(places))


def phrases(rows: list[Row]) -> tuple[str, ...]:
    """Returns texts of one token each: moves, and constant texts of the game. A move then differs from the same
    letter on the board, and a turn has about 20 tokens instead of 60."""
    rules, _, rest = rows[0]["prompt"].partition("C00")
    lives = rest[rest.index("\nYou have") :]
    headers = sorted({header(columns(row)) for row in rows})
    moves = [f"[{letter}]" for letter in string.ascii_uppercase]
    return (rules, lives, *AGAIN.split("{}"), *headers, *moves)


def demonstration(rng: random.Random, rows: list[Row]) -> Any:
    """Returns a demonstration of random letters on the board of an invented word. It shows the rules: a letter is
    named once, and the game complains otherwise; the choice of letters depends on nothing else."""
    from claw_lab.tiny_models.dialogue import Answered, Dialogue

    row = rng.choice(rows)
    word = "".join(rng.choices(string.ascii_uppercase, k=columns(row)))
    asked = row["metadata"]["verifiers_task"]
    first = [
        {"role": "system", "content": asked["system_prompt"]},
        {"role": "user", "content": row["prompt"]},
    ]
    named, turns = list[str](), []
    for letter in rng.sample(string.ascii_uppercase, k=rng.randrange(14, 25)):
        if named and rng.random() < SLIPS:
            again = rng.choice(named)
            turns.append(Answered(f"[{again}]", [{"role": "user", "content": AGAIN.format(again)}]))
        named.append(letter)
        shown = board(one if one in named else "_" for one in word)
        turns.append(Answered(f"[{letter}]", [{"role": "user", "content": shown}]))
    turns[-1] = Answered(turns[-1].text)
    return Dialogue(Start(first), turns)


def make_model(rows: list[Row], out: Path) -> None:
    import torch

    from claw_lab.tiny_models.recipe import Recipe, make_checkpoint

    torch.set_num_threads(2)
    recipe = Recipe(
        vocabulary=360, hidden=64, layers=2, steps=STEPS, batch_tokens=4000, corpus=200, phrases=phrases(rows)
    )
    make_checkpoint(out, lambda rng: demonstration(rng, rows), recipe)


def split(rows: list[Row], out: Path) -> None:
    """Writes all tasks with a training word, and one task for each held-out word."""
    held_out_words: dict[str, Row] = {}
    train = []
    for row in rows:
        word = word_of(row)
        if held_out(word):
            held_out_words.setdefault(word, row)
        else:
            train.append(row)
    for name, part in (("train", train), ("heldout", list(held_out_words.values()))):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    print(f"{len(train)} tasks to train on, {len(held_out_words)} with words that none of them has")


def mean(rewards: list[float]) -> list[float]:
    """Returns the mean and its 95 % interval, of one reward for each word."""
    middle = statistics.fmean(rewards)
    width = 1.96 * statistics.stdev(rewards) / len(rewards) ** 0.5
    return [round(one, 3) for one in (middle, middle - width, middle + width)]


def result(run: Path, seconds: float) -> str:
    """Returns mean reward with its interval and solved words, before and after; null for missing evaluations of an
    interrupted run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "rollout/reward_mean" in line]
    words: dict[int, dict[str, list[float]]] = {}
    for line in (run / "evaluations.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["success"] is None:
            continue  # the infrastructure failed
        words.setdefault(row["rollout_id"], {}).setdefault(row["task_id"], []).append(row["reward"])
    first, last = words[min(words)], words[max(words)]
    again = len(words) > 1
    return json.dumps(
        {
            "reward_before": mean([statistics.fmean(one) for one in first.values()]),
            "reward_after": mean([statistics.fmean(one) for one in last.values()]) if again else None,
            "found_before": sum(reward >= 1 for one in first.values() for reward in one),
            "found_after": sum(reward >= 1 for one in last.values() for reward in one) if again else None,
            "held_out_words": len(last),
            "games": sum(map(len, last.values())),
            "training_rewards": [round(line["rollout/reward_mean"], 2) for line in lines],
            "infra_failures": sum(int(line.get("rollout/episode/environments_away", 0)) for line in lines),
            "seconds": round(seconds),
        }
    )


def main(what: str, *paths: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if what == "result":
        print(result(Path(paths[0]), float(paths[1])))
        return
    *read, out = map(Path, paths)
    out.mkdir(parents=True, exist_ok=True)
    if what == "words":
        for name in ("en-basic", "en"):
            (out / "corpora" / "words").mkdir(parents=True, exist_ok=True)
            (out / "corpora" / "words" / name).write_text("\n".join(WORDS) + "\n")
        return
    rows = [json.loads(line) for line in read[0].read_text().splitlines()]
    split(rows, out) if what == "split" else make_model(rows, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
