"""Measures a learned judge on questions that it was not fitted to: folds of whole sessions."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw.judge.learned.classifier import (
    CLASSES,
    Example,
    Fitting,
    decided,
    fit,
    fit_temperature,
    logits,
    softmax,
)

FOLDS = 5
BINS = 10
LEAST_THRESHOLD, THRESHOLD_STEP = 0.4, 0.02


@dataclass(frozen=True)
class HeldOut:
    """Examples with the logits of weights that were fitted without their fold."""

    examples: Sequence[Example]
    folds: Sequence[int]
    logits: Sequence[Sequence[float]]

    def probabilities(self) -> list[list[float]]:
        """At the temperature that the other folds are best calibrated with."""
        temperatures = [self._temperature_without(fold) for fold in range(FOLDS)]
        pairs = zip(self.logits, self.folds, strict=True)
        return [softmax(values, temperatures[fold]) for values, fold in pairs]

    def _temperature_without(self, fold: int) -> float:
        kept = [number for number, other in enumerate(self.folds) if other != fold]
        return fit_temperature(
            [self.logits[number] for number in kept], [self.examples[number].target for number in kept]
        )


def fold_of(example: Example) -> int:
    """The same for all examples of a group, whatever else there is."""
    return zlib.crc32(example.group.encode()) % FOLDS


def held_out(examples: Sequence[Example], how: Fitting) -> HeldOut:
    """Fits once a fold."""
    folds = [fold_of(example) for example in examples]
    found: list[Sequence[float]] = [()] * len(examples)
    for fold in sorted(set(folds)):
        rest = [example for example, other in zip(examples, folds, strict=True) if other != fold]
        weights = fit(rest, how)
        for number, example in enumerate(examples):
            if folds[number] == fold:
                found[number] = logits(weights, example.rules, example.features)
    return HeldOut(examples, folds, found)


def choose_threshold(
    examples: Sequence[Example], given: Sequence[Sequence[float]], most_wrong: float
) -> float:
    """The lowest probability of a sign above which at most `most_wrong` of the examples get the opposite one, and as
    many of those without a sign any."""
    steps = int((1 - LEAST_THRESHOLD) / THRESHOLD_STEP)
    for threshold in (round(LEAST_THRESHOLD + THRESHOLD_STEP * step, 2) for step in range(steps)):
        shares = agreement(examples, [decided(one, threshold) for one in given])
        if shares["opposite"] <= most_wrong and shares["invented"] <= most_wrong:
            return threshold
    return 1.0


def agreement(examples: Sequence[Example], scores: Sequence[int]) -> dict[str, float]:
    """Shares: right; the opposite sign; a sign where the label is 0; none if it is a sign."""
    pairs = [(example.label, score) for example, score in zip(examples, scores, strict=True)]
    signs, neutral = [pair for pair in pairs if pair[0]], [pair for pair in pairs if not pair[0]]
    return {
        "right": _share([label == score for label, score in pairs]),
        "opposite": _share([label * score < 0 for label, score in pairs]),
        "invented": _share([score != 0 for _, score in neutral]),
        "missed": _share([score == 0 for _, score in signs]),
    }


def calibration_error(examples: Sequence[Example], given: Sequence[Sequence[float]]) -> float:
    """Returns the expected calibration error: mean over examples of |probability given to the likeliest class - share in
    which it is the label|, in bins of a tenth (Guo 2017)."""
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for example, one in zip(examples, given, strict=True):
        top = max(one)
        bins[min(int(top * BINS), BINS - 1)].append((top, CLASSES[one.index(top)] == example.label))
    gaps = [abs(sum(p for p, _ in part) - sum(hit for _, hit in part)) for part in bins]
    return sum(gaps) / max(len(examples), 1)


def _share(hits: Sequence[bool]) -> float:
    return round(sum(hits) / len(hits), 4) if hits else 0.0
