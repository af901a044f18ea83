"""Probabilities of the three scores of a question, fitted as a correction of the rules' score.

A logit is a prior for the rules' score plus a linear function of the features. Without examples the classifier equals
the rules; examples move it away from them. Softmax regression with L2 on the linear part, AdaGrad (Duchi 2011), and one
temperature for calibration (Guo 2017).
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw.judge.learned.features import Features

CLASSES = (-1, 0, 1)
PRIOR = math.log(8)
"""Logit that the rules' own score has above the two others. It makes the rules right in 0.8 of cases, as measured on
recorded next states."""

Weights = dict[int, list[float]]
"""By bucket, one number a class."""


@dataclass(frozen=True)
class Example:
    """A question with what is known about it.

    Attributes:
        rules: the score of the rules.
        target: probability of each of `CLASSES`; they sum up to 1.
        weight: how many ordinary examples it counts for.
        group: its session; one group is never on both sides of a split.
    """

    rules: int
    features: Features
    target: tuple[float, float, float]
    weight: float = 1.0
    group: str = ""

    @property
    def label(self) -> int:
        """The likeliest class; 0 where two are equally likely."""
        best = max(self.target)
        likely = [name for name, share in zip(CLASSES, self.target, strict=True) if share == best]
        return likely[0] if len(likely) == 1 else 0


@dataclass(frozen=True)
class Fitting:
    """Settings of the fit: passes over the examples, AdaGrad's rate, weight of L2 an example."""

    passes: int = 20
    rate: float = 0.3
    l2: float = 1e-3
    seed: int = 0


def logits(weights: Weights, rules: int, features: Features) -> list[float]:
    """One a class, before the temperature."""
    found = [PRIOR if name == rules else 0.0 for name in CLASSES]
    for bucket, value in features.items():
        if row := weights.get(bucket):
            for index in range(3):
                found[index] += row[index] * value
    return found


def softmax(values: Sequence[float], temperature: float = 1.0) -> list[float]:
    top = max(values)
    powers = [math.exp((value - top) / temperature) for value in values]
    total = sum(powers)
    return [power / total for power in powers]


def fit(examples: Sequence[Example], how: Fitting | None = None) -> Weights:
    """The weights that make the targets likely; the same examples give the same weights."""
    how = how or Fitting()
    weights: Weights = defaultdict(lambda: [0.0, 0.0, 0.0])
    squares: Weights = defaultdict(lambda: [1e-6, 1e-6, 1e-6])
    order, rng = list(range(len(examples))), random.Random(how.seed)
    for _ in range(how.passes):
        rng.shuffle(order)
        for number in order:
            example = examples[number]
            given = softmax(logits(weights, example.rules, example.features))
            errors = [example.weight * (p - t) for p, t in zip(given, example.target, strict=True)]
            for bucket, value in example.features.items():
                row, square = weights[bucket], squares[bucket]
                for index in range(3):
                    gradient = errors[index] * value + how.l2 * row[index]
                    square[index] += gradient * gradient
                    row[index] -= how.rate * gradient / math.sqrt(square[index])
    return dict(weights)


def fit_temperature(found: Sequence[Sequence[float]], targets: Sequence[Sequence[float]]) -> float:
    """The temperature from .5 to 5 at which the logits `found` make the targets likeliest; 1 without any."""

    def loss(temperature: float) -> float:
        pairs = zip(found, targets, strict=True)
        return -sum(
            share * math.log(max(given, 1e-12))
            for values, target in pairs
            for given, share in zip(softmax(values, temperature), target, strict=True)
        )

    steps = [0.5 * 10 ** (step / 40) for step in range(41)]
    return min(steps, key=loss) if found else 1.0


def decided(probabilities: Sequence[float], threshold: float) -> int:
    """The sign that is likelier than the threshold; else 0: a wrong sign is worse than none."""
    sign = -1 if probabilities[0] >= probabilities[2] else 1
    return sign if probabilities[CLASSES.index(sign)] > threshold else 0
