"""Grade-school arithmetic homework: word problems with the equations that solve them.

Two things are kept out of all training text, so that a test can distinguish learning from memorizing: some facts
(`fact_is_held_out`, about one in seventeen sums and differences) and some stories (`story_is_held_out`,
about one in ten pairs of a child and a thing).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["add", "subtract", "multiply", "two-step", "group-step", "sum"]
Split = Literal["train", "held-out"]

GIRLS = (
    "Mia",
    "Anna",
    "Lily",
    "Zoe",
    "Ella",
    "Nora",
    "Ruth",
    "Kate",
    "Rosa",
    "Jane",
    "Lena",
    "Tina",
    "Dora",
    "Vera",
)
BOYS = (
    "Tom",
    "Sam",
    "Ben",
    "Max",
    "Leo",
    "Jack",
    "Omar",
    "Ivan",
    "Paul",
    "Hugo",
    "Eric",
    "Amir",
    "Carl",
    "Noah",
)
ITEMS = (
    "apples", "books", "coins", "cards", "pens", "stamps", "shells", "marbles", "stickers", "cookies",
    "balls", "eggs", "flowers", "toys", "beads", "stones", "cups", "keys", "pears", "nuts",
)  # fmt: skip
GROUPS = ("bags", "boxes", "rows", "packs", "trays")
GAINS = ("buys", "finds", "gets", "wins", "picks up")
LOSSES = ("gives away", "loses", "sells", "drops", "uses")
LIMIT = 50  # no sum in a story goes above this
KIND_WEIGHTS: dict[Kind, int] = {
    "add": 25, "subtract": 25, "multiply": 14, "two-step": 20, "group-step": 8, "sum": 8,
}  # fmt: skip
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "x": lambda a, b: a * b,
}


@dataclass(frozen=True)
class Step:
    """One equation, `a op b = result`, with op one of + - x."""

    a: int
    op: str
    b: int

    @property
    def result(self) -> int:
        return _OPERATIONS[self.op](self.a, self.b)

    def __str__(self) -> str:
        return f"{self.a} {self.op} {self.b} = {self.result}"


@dataclass(frozen=True)
class Problem:
    """A homework problem; `actions` has one verb for each step that changes the number of things."""

    text: str
    kind: Kind
    steps: tuple[Step, ...]
    name: str = ""
    pronoun: str = ""
    item: str = ""
    group: str = ""
    actions: tuple[str, ...] = ()

    @property
    def answer(self) -> int:
        return self.steps[-1].result

    @property
    def equations(self) -> tuple[str, ...]:
        return tuple(str(step) for step in self.steps)


def fact_is_held_out(step: Step) -> bool:
    """Returns whether the sum or difference is held out from training (the same for a + b and b + a)."""
    low, high = sorted((step.a, step.b))
    return step.op in "+-" and low >= 3 and high >= 10 and (low * high + low + high) % 17 == 5


def story_is_held_out(name: str, item: str) -> bool:
    """Returns whether stories about this child and this thing are held out from training."""
    return (3 * (GIRLS + BOYS).index(name) + 7 * ITEMS.index(item)) % 10 == 4


def random_problem(rng: random.Random, split: Split = "train", kind: Kind | None = None) -> Problem:
    """Draws one problem. Train: no held-out story, no held-out fact. Held-out: a held-out story, or for the kind
    "sum", which has no story, a held-out fact."""
    kind = kind or rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))[0]
    while True:
        problem = _sum(rng) if kind == "sum" else _story(rng, kind, split)
        has_held_fact = any(fact_is_held_out(step) for step in problem.steps)
        if (split == "train" and not has_held_fact) or (
            split == "held-out" and (has_held_fact or kind != "sum")
        ):
            return problem


def held_out_problems(n: int = 1000, seed: int = 0, only_held_out_facts: bool = False) -> list[Problem]:
    """Returns `n` problems that no training text contains; `only_held_out_facts`: each needs a fact that was never
    trained."""
    rng = random.Random(f"held-out {seed}")
    problems: list[Problem] = []
    while len(problems) < n:
        problem = random_problem(rng, "held-out")
        if not only_held_out_facts or any(fact_is_held_out(step) for step in problem.steps):
            problems.append(problem)
    return problems


def random_step(rng: random.Random, op: str, a: int | None = None) -> Step | None:
    """Returns a random step that starts from `a` things (or any number) and stays within 2..LIMIT; None if there is
    none."""
    if op == "x":
        return Step(rng.randint(2, 9), "x", rng.randint(2, 9))
    if a is None:
        a = rng.randint(3, LIMIT - 1) if rng.random() < 0.6 else rng.randint(3, 20)
    room = LIMIT - a if op == "+" else a - 2
    return Step(a, op, rng.randint(1, min(30, room))) if room >= 1 else None


def _sum(rng: random.Random) -> Problem:
    step = None
    while step is None:
        step = random_step(rng, rng.choice("++--x"))
    asked = f"{step.a} {step.op} {step.b}"
    text = rng.choice(
        ("What is {}?", "{} = ?", "How much is {}?", "Please solve {}.", "Calculate {}.")
    ).format(asked)
    return Problem(text, "sum", (step,))


def _story(rng: random.Random, kind: Kind, split: Split) -> Problem:
    while True:
        name, item = rng.choice(GIRLS + BOYS), rng.choice(ITEMS)
        if story_is_held_out(name, item) != (split == "held-out"):
            continue
        steps, actions = _steps(rng, kind)
        if steps:
            break
    pronoun = "she" if name in GIRLS else "he"
    group = rng.choice(GROUPS)
    scene = _scene(rng, kind, name, pronoun, item, group, steps, actions)
    text = f"{scene} {_question(rng, name, pronoun, item)}"
    return Problem(text, kind, tuple(steps), name, pronoun, item, group, tuple(actions))


def _steps(rng: random.Random, kind: Kind) -> tuple[list[Step], list[str]]:
    """Returns chained steps of the kind and a verb for each sum or difference; empty if no valid numbers were
    left."""
    ops = {"add": "+", "subtract": "-", "multiply": "x"}.get(kind) or (
        "x" + rng.choice("+-") if kind == "group-step" else rng.choice("+-") + rng.choice("+-")
    )
    steps: list[Step] = []
    actions: list[str] = []
    for op in ops:
        step = random_step(rng, op, steps[-1].result if steps else None)
        if step is None or (len(ops) == 2 and step.result >= LIMIT):
            return [], []
        steps.append(step)
        if op != "x":
            actions.append(rng.choice(GAINS if op == "+" else LOSSES))
    return steps, actions


def _scene(
    rng: random.Random,
    kind: Kind,
    name: str,
    pronoun: str,
    item: str,
    group: str,
    steps: list[Step],
    actions: list[str],
) -> str:
    changes = [
        f"{verb} {step.b} more" if step.op == "+" else f"{verb} {step.b}"
        for verb, step in zip(actions, (s for s in steps if s.op != "x"), strict=True)
    ]
    first = steps[0]
    if kind in ("multiply", "group-step"):
        scene = rng.choice(
            (
                f"{name} has {first.a} {group} with {first.b} {item} in each.",
                f"{name} has {first.a} {group}. There are {first.b} {item} in each.",
                f"{name} owns {first.a} {group} of {first.b} {item} each.",
            )
        )
        return f"{scene} Then {pronoun} {changes[0]}." if changes else scene
    if len(changes) == 1:
        return rng.choice(
            (
                f"{name} has {first.a} {item} and {changes[0]}.",
                f"{name} had {first.a} {item}. Then {pronoun} {changes[0]}.",
                f"{name} starts with {first.a} {item} and {changes[0]}.",
            )
        )
    return rng.choice(
        (
            f"{name} has {first.a} {item}, {changes[0]} and then {changes[1]}.",
            f"{name} had {first.a} {item}. First {pronoun} {changes[0]}, then {pronoun} {changes[1]}.",
        )
    )


def _question(rng: random.Random, name: str, pronoun: str, item: str) -> str:
    return rng.choice(
        (
            f"How many {item} does {pronoun} have?",
            f"How many {item} does {name} have now?",
            f"How many {item} are there in the end?",
        )
    )
