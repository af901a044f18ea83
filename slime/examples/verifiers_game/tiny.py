"""What a laptop needs to learn the game: words, tasks whose words are held out, a tiny model that knows the format.

python tiny.py words FOLDER                 the words as nltk keeps them: FOLDER/corpora/words/en-basic
python tiny.py split ROWS.jsonl FOLDER      train.jsonl and heldout.jsonl, of different words
python tiny.py model ROWS.jsonl FOLDER      a Qwen3 of 0.3 million parameters that names letters by chance
python tiny.py result RUN SECONDS           one line about the evaluations of a run
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import string
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slime.agents import Start

WORDS = Path(__file__).with_name("words.txt").read_text().split()
HELD_OUT = 0.2
COLUMNS = re.compile(r"C\d\d")
Row = dict[str, Any]


def word_of(row: Row) -> str:
    """The word that a task's seed chooses. Raises ValueError where the task's board has another length."""
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
    """As the game draws it; "_" is a letter that is not known."""
    cells = list(letters)
    numbers = " ".join(f"C{place:02}" for place in range(len(cells)))
    return numbers + "\n " + "".join(f" {cell}  " for cell in cells).rstrip()


def demonstration(rng: random.Random, rows: list[Row]) -> Any:
    """Letters by chance on the board of a word that does not exist; which letter depends on nothing."""
    from slime.agents.tiny import Answered, Dialogue

    row = rng.choice(rows)
    word = "".join(rng.choices(string.ascii_uppercase, k=columns(row)))
    asked = row["metadata"]["verifiers_task"]
    first = [
        {"role": "system", "content": asked["system_prompt"]},
        {"role": "user", "content": row["prompt"]},
    ]
    known, turns = ["_"] * len(word), []
    for _ in range(rng.randrange(3, 12)):
        letter = rng.choice(string.ascii_uppercase)
        known = [one if one == letter else seen for one, seen in zip(word, known, strict=True)]
        turns.append(Answered(f"[{letter}]", [{"role": "user", "content": board(known)}]))
    return Dialogue(Start(first), [*turns, Answered(f"[{rng.choice(string.ascii_uppercase)}]")])


def make_model(rows: list[Row], out: Path) -> None:
    import torch

    from slime.agents.tiny import Recipe, make_checkpoint

    torch.set_num_threads(2)
    recipe = Recipe(vocabulary=640, hidden=64, layers=2, steps=160, batch_tokens=3000, corpus=300)
    make_checkpoint(out, lambda rng: demonstration(rng, rows), recipe)


def split(rows: list[Row], out: Path) -> None:
    """All tasks with a word of the one kind; one task for each held-out word."""
    apart: dict[str, Row] = {}
    train = []
    for row in rows:
        word = word_of(row)
        if held_out(word):
            apart.setdefault(word, row)
        else:
            train.append(row)
    for name, found in (("train", train), ("heldout", list(apart.values()))):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in found))
    print(f"{len(train)} tasks to train on, {len(apart)} with words that none of them has")


def result(run: Path, seconds: float) -> str:
    """Mean reward and words found, before and after; null for what a run that was ended early did not get to."""
    rows = [json.loads(line) for line in (run / "evaluations.jsonl").read_text().splitlines()]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "rollout/reward_mean" in line]
    first, last = (
        [row for row in rows if row["rollout_id"] == which]
        for which in (rows[0]["rollout_id"], rows[-1]["rollout_id"])
    )
    again = rows[0]["rollout_id"] != rows[-1]["rollout_id"]
    return json.dumps(
        {
            "reward_before": round(sum(row["reward"] for row in first) / len(first), 3),
            "reward_after": round(sum(row["reward"] for row in last) / len(last), 3) if again else None,
            "found_before": sum(row["reward"] >= 1 for row in first),
            "found_after": sum(row["reward"] >= 1 for row in last) if again else None,
            "held_out_words": len(last),
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
