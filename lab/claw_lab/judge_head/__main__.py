"""Trains the head of the judge's sentence model from the labelled lines of this repository.

`bash lab/run.sh judge_head` writes openclaw/judge/sentences/head.npz and prints one JSON object: the accuracy of the
head on writers that a fit has not seen, and of the rules on the same lines. It needs the extra `sentences` and takes
two minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from claw_lab.judge_head.fitting import (
    bound_of_kind,
    choose_bounds,
    decided,
    features,
    fit,
    measured,
    measured_forms,
    rules_of,
    without_writer,
)
from claw_lab.judge_head.lines import Line, about_form, training_lines
from openclaw.judge.sentences.encoder import Encoder
from openclaw.judge.sentences.head import KINDS, SHIPPED, Bounds


def digest(lines: Sequence[Line]) -> str:
    """Returns the digest of a set of training lines."""
    written = json.dumps([dataclasses.astuple(line) for line in lines])
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def shipped_bounds() -> Bounds:
    """Returns the thresholds of the shipped head."""
    with np.load(SHIPPED) as stored:
        return Bounds(**json.loads(str(stored["about"]))["bounds"])


def run(path: Path, choose: bool) -> dict[str, object]:
    """Writes the head and returns its measurements.

    Args:
        choose: choose all thresholds again; otherwise only the one of kinds, and keep the other shipped ones.
    """
    lines = training_lines()
    seen = features(lines, Encoder())
    own = [at for at, line in enumerate(lines) if not line.rules_know]
    writers = sorted({lines[at].writer for at in own})
    unlike_lines = without_writer(lines, seen, writers)[own]
    judged, rules = [lines[at] for at in own], rules_of([lines[at] for at in own])
    kind = bound_of_kind(judged, unlike_lines)
    if choose:
        form_writers = {line.writer for line in about_form("train")}
        # Complaints about form are more frequent in data/form than in conversations, and would shift the other
        # thresholds.
        typical = [at for at, line in enumerate(judged) if line.writer not in form_writers]
        bounds = choose_bounds([judged[at] for at in typical], unlike_lines[typical], rules[typical], kind)
    else:
        bounds = dataclasses.replace(shipped_bounds(), kind=kind)
    scores = decided(judged, unlike_lines, rules, bounds)
    measurements: dict[str, object] = {
        "training_lines": len(lines),
        "rules": measured(judged, rules),
        "forms": measured_forms(judged, unlike_lines, bounds),
        "head": measured(judged, scores),
        "languages": {
            name: measured(*_only(judged, scores, name))
            for name in sorted({line.language for line in judged})
        },
    }
    head = fit(lines, seen)
    about = {
        "kinds": KINDS, "bounds": dataclasses.asdict(bounds), "lines": digest(lines), "measured": measurements,
    }  # fmt: skip
    np.savez_compressed(
        path,
        weights=head.weights.astype(np.float16),
        bias=head.bias.astype(np.float16),
        about=np.array(json.dumps(about)),
    )
    return {**measurements, "bounds": dataclasses.asdict(bounds), "bytes": path.stat().st_size}


def _only(lines: Sequence[Line], scores: np.ndarray, language: str) -> tuple[list[Line], np.ndarray]:
    own = [at for at, line in enumerate(lines) if line.language == language]
    return [lines[at] for at in own], scores[own]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=SHIPPED, help="output file")
    parser.add_argument(
        "--choose-bounds",
        action="store_true",
        help="choose all thresholds again; otherwise only that of kinds, keeping the other shipped ones",
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    print(json.dumps(run(args.output, args.choose_bounds)))


if __name__ == "__main__":
    main()
