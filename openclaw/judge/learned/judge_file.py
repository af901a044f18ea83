"""The file of a learned judge: weights, temperature, threshold, and what was measured when it was made."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openclaw.errors import ConfigError
from openclaw.judge.learned.classifier import Example, Fitting, Weights, decided, fit, fit_temperature
from openclaw.judge.learned.features import BUCKETS
from openclaw.judge.learned.measured import (
    agreement,
    calibration_error,
    choose_threshold,
    held_out,
)

FEWEST = 20
"""Fewest examples, from at least two sessions; with fewer, accuracy on new sessions cannot be estimated."""
_SMALL = 1e-3
"""Weights below it are left out of the file."""


class JudgeFile(BaseModel):
    """A learned judge. `measured`: its accuracy and that of the rules, on sessions that it was not fitted to."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    format: Literal[1] = 1
    buckets: int = BUCKETS
    temperature: float = Field(gt=0)
    threshold: float = Field(gt=0, le=1)
    measured: dict[str, Any] = Field(default_factory=dict)
    weights: dict[int, tuple[float, float, float]]

    @property
    def digest(self) -> str:
        """Hash that differs between any two judges."""
        return hashlib.sha256(self.model_dump_json(exclude={"measured"}).encode()).hexdigest()[:8]

    @property
    def rows(self) -> Weights:
        return {bucket: list(row) for bucket, row in self.weights.items()}

    @classmethod
    def read(cls, path: str) -> JudgeFile:
        """Raises ConfigError for a file that is none, or of another version."""
        try:
            found = cls.model_validate_json(Path(path).read_bytes())
        except OSError as error:
            raise ConfigError(f"--judge-learned-file {path}: {error.strerror or error}") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field = ".".join(map(str, first["loc"]))
            raise ConfigError(
                f"--judge-learned-file {path} is no learned judge: {field} {first['msg']}; "
                "make one with python -m openclaw.judge.learned"
            ) from error
        if found.buckets != BUCKETS:
            raise ConfigError(f"--judge-learned-file {path} was made by another version; make it again")
        return found


def learn(examples: Sequence[Example], most_wrong: float, how: Fitting | None = None) -> JudgeFile:
    """A judge of the examples. Raises ConfigError if there are too few."""
    how = how or Fitting()
    groups = {example.group for example in examples}
    if len(examples) < FEWEST or len(groups) < 2:
        raise ConfigError(
            f"{len(examples)} judged turns of {len(groups)} sessions are too few to learn a judge from; "
            f"{FEWEST} of two sessions are the least"
        )
    apart = held_out(examples, how)
    given = apart.probabilities()
    threshold = choose_threshold(examples, given, most_wrong)
    measured = {
        "examples": len(examples),
        "sessions": len(groups),
        "overruled": sum(example.weight > 1 for example in examples),
        "learned": agreement(examples, [decided(one, threshold) for one in given]),
        "rules": agreement(examples, [example.rules for example in examples]),
        "calibration_error": round(calibration_error(examples, given), 4),
    }
    kept = {
        bucket: (round(row[0], 4), round(row[1], 4), round(row[2], 4))
        for bucket, row in sorted(fit(examples, how).items())
        if max(map(abs, row)) >= _SMALL
    }
    temperature = fit_temperature(apart.logits, [example.target for example in examples])
    return JudgeFile(temperature=round(temperature, 4), threshold=threshold, measured=measured, weights=kept)
