"""Trains the head of the judge's sentence model from the labelled lines of this repository.

`bash lab/run.sh judge_head` fits the weights of forms, writes openclaw/judge/sentences/head.npz and prints one JSON
object: the accuracy of the head on writers that a fit has not seen, and of the rules on the same lines. The shipped
weights of scores are kept without `--scores`. It needs the extra `sentences` and takes four minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from claw_lab.judge_head.fitting import (
    Array,
    Weights,
    bound_of_kind,
    choose_bounds,
    decided,
    features,
    fit,
    measured,
    measured_forms,
    mixed,
    rules_of,
    without_writer,
)
from claw_lab.judge_head.lines import Line, about_form, indirect_training_lines, training_lines
from openclaw.judge.sentences.encoder import Encoder
from openclaw.judge.sentences.head import KINDS, SHIPPED, Bounds


def digest(lines: Sequence[Line]) -> str:
    """Returns the digest of a set of training lines."""
    written = json.dumps([dataclasses.astuple(line) for line in lines])
    return hashlib.sha256(written.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Seen:
    """Lines that the rules were not written with, and the probabilities of their kinds, `[lines, kinds]` each, by the
    weights of scores and of forms of fits without their writers."""

    lines: list[Line]
    scores: Array
    forms: Array

    def of(self, belongs: Callable[[Line], bool]) -> Seen:
        at = [at for at, line in enumerate(self.lines) if belongs(line) and not line.rules_know]
        return Seen([self.lines[one] for one in at], self.scores[at], self.forms[at])


def seen_by_fits(lines: list[Line], inputs: Array, form_inputs: Array, hard: Collection[str]) -> Seen:
    """Fits the weights without each writer in turn.

    Args:
        inputs, form_inputs: features for scores and for forms, `[lines, features]` each.
        hard: writers whose lines train only the weights of forms.
    """
    writers = sorted({line.writer for line in lines if not line.rules_know})
    scores = without_writer(lines, inputs, writers, not_fitted=hard)
    return Seen(lines, scores, mixed(without_writer(lines, form_inputs, writers), scores))


def shipped() -> tuple[Weights, Bounds, str]:
    """Returns the weights of scores, the thresholds and the digest of the lines of the shipped head."""
    with np.load(SHIPPED) as stored:
        about = json.loads(str(stored["about"]))
        weights, bias = (stored[name].astype(np.float32) for name in ("weights", "bias"))
    return Weights(weights, bias), Bounds(**about["bounds"]), about["lines"]


def run(path: Path, with_scores: bool) -> dict[str, object]:
    """Writes the head and returns its measurements.

    Args:
        with_scores: fit the weights of scores and choose all thresholds again; otherwise only the weights of forms
            and their threshold.
    """
    lines, indirect_lines = training_lines(), indirect_training_lines()
    all_lines = [*lines, *indirect_lines]
    hard = {line.writer for line in indirect_lines}
    inputs, form_inputs = features(all_lines, Encoder())
    seen = seen_by_fits(all_lines, inputs, form_inputs, hard)
    # Indirect complaints, and remarks that resemble them, are more frequent there than in conversations.
    usual, indirect_ones = (
        seen.of(lambda line: line.writer not in hard),
        seen.of(lambda line: line.writer in hard),
    )
    kind = bound_of_kind(usual.lines, usual.forms)
    weights, bounds, trained_on = shipped()
    if with_scores:
        weights, trained_on = fit(lines, inputs[: len(lines)]), digest(lines)
        bounds = chosen_bounds(usual, kind)
    bounds = dataclasses.replace(bounds, kind=kind)
    measurements = {
        "training_lines": len(all_lines),
        **measure(usual, bounds),
        "indirect": measured_forms(indirect_ones.lines, indirect_ones.forms, bounds),
    }
    about = {
        "kinds": KINDS, "bounds": dataclasses.asdict(bounds), "lines": trained_on, "form_lines": digest(all_lines),
        "measured": measurements,
    }  # fmt: skip
    write(path, weights, fit(all_lines, form_inputs).mixed(weights), about)
    return {**measurements, "bounds": dataclasses.asdict(bounds), "bytes": path.stat().st_size}


def chosen_bounds(seen: Seen, kind: float) -> Bounds:
    """Returns the thresholds for typical lines: complaints about form are more frequent in data/form than in
    conversations, and would shift the thresholds of scores."""
    form_writers = {line.writer for line in about_form("train")}
    typical = seen.of(lambda line: line.writer not in form_writers)
    return choose_bounds(typical.lines, typical.scores, typical.forms, rules_of(typical.lines), kind)


def measure(seen: Seen, bounds: Bounds) -> dict[str, object]:
    """Returns the accuracy of the rules and of the head on writers that the fits have not seen."""
    lines, rules = seen.lines, rules_of(seen.lines)
    scores = decided(lines, seen.scores, seen.forms, rules, bounds)
    return {
        "rules": measured(lines, rules),
        "forms": measured_forms(lines, seen.forms, bounds),
        "head": measured(lines, scores),
        "languages": {
            name: measured(*_only(lines, scores, name)) for name in sorted({line.language for line in lines})
        },
    }


def write(path: Path, scores: Weights, forms: Weights, about: Mapping[str, object]) -> None:
    np.savez_compressed(
        path,
        weights=scores.weights.astype(np.float16),
        bias=scores.bias.astype(np.float16),
        form_weights=forms.weights.astype(np.float16),
        form_bias=forms.bias.astype(np.float16),
        about=np.array(json.dumps(about)),
    )


def _only(lines: Sequence[Line], scores: np.ndarray, language: str) -> tuple[list[Line], np.ndarray]:
    own = [at for at, line in enumerate(lines) if line.language == language]
    return [lines[at] for at in own], scores[own]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=SHIPPED, help="output file")
    parser.add_argument(
        "--scores",
        action="store_true",
        help="fit the weights of scores and choose all thresholds again; otherwise the weights of forms only",
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(json.dumps(run(args.output, args.scores)))


if __name__ == "__main__":
    main()
