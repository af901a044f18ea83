"""The linear head on the features of a user's message: probabilities of each kind of message, and the resulting
score.

Multinomial logistic regression over kinds; the probability of a score is the sum over its kinds. A second set of
weights classifies the form that a message asks for: it is trained on more lines, of which most are about form and
would shift the scores. `head.npz` contains weights and thresholds; `claw_lab.judge_head` makes it from labelled lines.
"""

from __future__ import annotations

import functools
import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from openclaw.common.answer_form import already_has
from openclaw.common.plain_sentences import Pole
from openclaw.judge.sentences.encoder import Encoder
from openclaw.judge.sentences.features import Remark, features_of, form_features_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float32]

SHIPPED = Path(__file__).with_name("head.npz")
WHEN: Mapping[str, str] = {
    "brief": "the answer was too long", "long": "the answer was too short", "prose": "no list or markup is wanted",
    "list": "a list or steps are wanted", "greeting": "a greeting is wanted",
    "nogreeting": "no preamble or flattery is wanted", "tone": "another tone is wanted",
    "simpler": "the answer was too hard or too childish", "language": "another language is wanted",
    "wrong": "the answer was wrong", "again": "the same is asked again", "vague": "a complaint", "thanks": "thanks",
    "next": "another request", "neutral": "nothing about the answer",
}  # fmt: skip
"""The meaning of each kind of message; all kinds, in the order of the weights."""
KINDS = tuple(WHEN)
SCORES: Mapping[str, int] = {"thanks": 1, "next": 0, "neutral": 0}
"""Scores of kinds; -1 for all others."""
_OF_SCORE: Mapping[int, str] = {-1: "vague", 0: "neutral", 1: "thanks"}
"""The kind that explains a score if the most probable kind has another score."""
POLES: Mapping[str, Pole] = {
    "brief": "short", "long": "long", "prose": "prose", "list": "list", "greeting": "greet",
    "nogreeting": "no_greeting",
}  # fmt: skip
"""The form that each kind of complaint asks for with a plain sentence."""


@dataclass(frozen=True)
class Bounds:
    """Probability thresholds.

    Attributes:
        low, high: of a complaint, and of thanks, if the rules find no sign.
        keep_low, keep_high: of the complaint, and of the thanks, that the rules find; below it the score is 0. The rules
            are more often wrong about thanks (irony) than about complaints.
        flip: of the opposite sign, which then replaces the rules' one.
        kind: of one of `POLES` that the answer lacks, which then counts as a complaint, whatever the rules find, and
            gets the plain sentence.
    """

    low: float
    high: float
    keep_low: float
    keep_high: float
    flip: float
    kind: float

    def form(self, reading: Reading, answer: str) -> str:
        """Returns the kind of complaint about the form of an answer, if it is probable enough; "" otherwise, and if
        the answer has the form that it asks for."""
        return reading.kind if self._is_about_form(reading.kind, reading.share, answer) else ""

    def _is_about_form(self, kind: str, share: float, answer: str) -> bool:
        return share >= self.kind and kind in lacking(answer)

    def judged(self, rules: int, reading: Reading, answer: str) -> int:
        """Returns the score of an answer from the rules' score and the classification of the message after it. A
        complaint about form by either set of weights counts; only that of forms gives a hint."""
        if self.form(reading, answer) or self._is_about_form(
            reading.scored_kind, reading.scored_share, answer
        ):
            return -1
        return self.score(rules, reading.low, reading.high)

    def score(self, rules: int, low: float, high: float) -> int:
        """Returns the score from the rules' score and the probabilities of a complaint and of thanks, if the message
        is no probable complaint about the form."""
        if rules == 0:
            sign, share, least = (-1, low, self.low) if low >= high else (1, high, self.high)
            return sign if share >= least else 0
        share, against, least = (low, high, self.keep_low) if rules < 0 else (high, low, self.keep_high)
        if against >= self.flip:
            return -rules
        return rules if share >= least else 0


@dataclass(frozen=True)
class Reading:
    """A classified message.

    Attributes:
        kind, share: the most probable kind, and its probability, by the weights of forms.
        low, high: probabilities of a complaint and of thanks, by the weights of scores.
        scored_kind, scored_share: the most probable kind, and its probability, by the weights of scores.
    """

    kind: str
    share: float
    low: float
    high: float
    scored_kind: str = "neutral"
    scored_share: float = 0.0

    def reason(self, score: int) -> str:
        """Returns an explanation for people."""
        likely = {-1: self.low, 1: self.high, 0: 1 - self.low - self.high}[score]
        kind = self.kind if SCORES.get(self.kind, -1) == score else _OF_SCORE[score]
        if kind in POLES:
            likely = max(likely, self.share)
        return f"reads like: {WHEN[kind]} ({likely:.0%} sure of the score)"


def lacking(answer: str) -> tuple[str, ...]:
    """Returns those of `POLES` that a complaint about this answer may be of."""
    has = already_has(answer)
    return tuple(kind for kind, pole in POLES.items() if pole not in has)


class Head:
    """Classifies messages. Raises ValueError for a file with other kinds or features."""

    def __init__(self, encoder: Encoder, path: Path = SHIPPED) -> None:
        import numpy as np

        with np.load(path, allow_pickle=False) as stored:
            self._weights: Array = stored["weights"].astype(np.float32)
            self._bias: Array = stored["bias"].astype(np.float32)
            # A file adapted by an earlier version has one set of weights for both.
            of_form = "form_" if "form_weights" in stored.files else ""
            self._form_weights: Array = stored[f"{of_form}weights"].astype(np.float32)
            self._form_bias: Array = stored[f"{of_form}bias"].astype(np.float32)
            about = self._about = orjson.loads(str(stored["about"]))
        if tuple(about["kinds"]) != KINDS or self._weights.shape[1] != len(KINDS):
            raise ValueError(
                f"{path} has other kinds of messages: make it again with bash lab/run.sh judge_head"
            )
        self.bounds = Bounds(**about["bounds"])
        self.measured: Mapping[str, object] = about["measured"]
        self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
        self._encoder = encoder
        self._scores = np.array([SCORES.get(kind, -1) for kind in KINDS])
        self.reading = functools.lru_cache(maxsize=256)(self._reading)

    def _reading(self, remark: Remark) -> Reading:
        """Returns the classification, cached, because score and hint are requested one after the other."""
        features = features_of(remark, self._encoder)
        of_form = form_features_of(features, remark, self._encoder)
        return self.of_powers(self.powers(features), self.form_powers(of_form))

    def powers(self, features: Array) -> Array:
        """Returns the logits of scores, `[..., kinds]`, of features `[..., features]`."""
        powers: Array = features @ self._weights + self._bias
        return powers

    def form_powers(self, features: Array) -> Array:
        """Returns the logits of forms, `[..., kinds]`, of `form_features_of`, `[..., features]`."""
        powers: Array = features @ self._form_weights + self._form_bias
        return powers

    def of_powers(self, powers: Array, form_powers: Array) -> Reading:
        """Classifies by logits of scores and of forms: `[kinds]` each."""
        shares, of_form = shares_of(powers), shares_of(form_powers)
        best, scored = int(of_form.argmax()), int(shares.argmax())
        low, high = (float(shares[self._scores == sign].sum()) for sign in (-1, 1))
        return Reading(KINDS[best], float(of_form[best]), low, high, KINDS[scored], float(shares[scored]))

    def changed(self, change: Array, measured: Mapping[str, object]) -> bytes:
        """Returns the file content of this head with a change `[features, kinds]` of both sets of weights, and its
        measurements."""
        import numpy as np

        about = {**self._about, "adapted": measured}
        file = io.BytesIO()
        np.savez_compressed(
            file,
            weights=(self._weights + change).astype(np.float16),
            bias=self._bias.astype(np.float16),
            form_weights=(self._form_weights + change).astype(np.float16),
            form_bias=self._form_bias.astype(np.float16),
            about=np.array(orjson.dumps(about).decode()),
        )
        return file.getvalue()


def shares_of(powers: Array) -> Array:
    """Returns the probability of each kind, `[..., kinds]`, from logits of that shape (softmax)."""
    import numpy as np

    exponentials = np.exp(powers - powers.max(axis=-1, keepdims=True))
    shares: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return shares
