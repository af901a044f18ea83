"""Sums, differences and products: short ones that a tiny model knows, long ones that need a calculator."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

TRAINED, UNSEEN = ("+", "*"), "-"
"""Operations that RL trains, and one that it never uses."""
WORDINGS = ("What is {}?", "Calculate {}.", "{} = ?")
HELD_OUT = 0.2
DEMONSTRATED_DIGITS, TRAINED_DIGITS, HELD_OUT_DIGITS = (3, 4, 5, 6, 7), (3, 4, 5), (3, 4, 5, 6)


@dataclass(frozen=True)
class Problem:
    """`first` `operation` `second`."""

    first: int
    operation: str
    second: int

    @property
    def text(self) -> str:
        return f"{self.first} {self.operation} {self.second}"

    @property
    def result(self) -> int:
        match self.operation:
            case "+":
                return self.first + self.second
            case "-":
                return self.first - self.second
            case _:
                return self.first * self.second

    @property
    def by_heart(self) -> bool:
        return max(self.first, self.second) < 10

    @property
    def held_out(self) -> bool:
        """Returns whether no demonstration and no task of RL may use the problem; one in five of the long ones, by a
        hash."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return not self.by_heart and digest[0] < 256 * HELD_OUT


def long_problem(rng: random.Random, operation: str, digits: int, held_out: bool = False) -> Problem:
    """Returns a problem of numbers with `digits` digits; the second number of a product has two."""
    while True:
        first = rng.randrange(10 ** (digits - 1), 10**digits)
        second = rng.randrange(11, 100) if operation == "*" else rng.randrange(10 ** (digits - 1), 10**digits)
        if operation == "-":
            first, second = max(first, second), min(first, second)
        problem = Problem(first, operation, second)
        if problem.held_out == held_out:
            return problem


def short_problem(rng: random.Random, operation: str) -> Problem:
    """Returns a problem of one-digit numbers."""
    first, second = rng.randrange(10), rng.randrange(10)
    if operation == "-":
        first, second = max(first, second), min(first, second)
    return Problem(first, operation, second)


def asked(rng: random.Random, problem: Problem) -> str:
    """Returns the problem in words."""
    return rng.choice(WORDINGS).format(problem.text)
