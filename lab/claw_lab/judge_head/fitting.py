"""Fits the head, and chooses its thresholds on writers that each fit has not seen."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from claw_lab.judge_head.lines import Line
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.judge.sentences.encoder import Encoder
from openclaw.judge.sentences.features import Remark, features_of, form_features_of
from openclaw.judge.sentences.head import KINDS, POLES, SCORES, Bounds, lacking

LABELS = (-1, 0, 1)
SCORE_OF = np.array([SCORES.get(kind, -1) for kind in KINDS])
L2 = 0.15
FOLDS = 6
"""Number of fits that each exclude some writers."""
OTHERS_WEIGHT = 0.7
"""Weight of a line of another list, relative to one of data/written."""
KIND_SHARE = 0.5
"""Weight of the kind in the loss; the rest is that of the score."""
MOST_WRONG = 0.016
"""Largest share of feedback with the wrong sign. The target is 0.02 on other lines, whose error is larger than on the
lines that choose the thresholds."""
MOST_JUDGED = 0.015
"""Largest share of new requests with a sign that the rules do not give."""
LEAST_KEPT = 0.98
"""Smallest share that is kept of the true complaints that the rules detect, since many of them are hints."""
SURE_OF_KIND = 0.93
"""Smallest share of right kinds among the plain sentences."""
SCORES_SHARE = 0.35
"""Share of the weights of scores in those of forms. Without it, more complaints about content get a plain sentence."""
MOST_MENTIONS = 0.013
"""Largest share of messages without a complaint that get a plain sentence."""
_STEPS = tuple(round(0.5 + 0.025 * step, 3) for step in range(20))
_KEEPS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
_FLIPS = (0.6, 0.7, 0.8, 0.9, 1.01)
"""Thresholds that are tried."""

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Weights:
    """Weights `[features, kinds]` and biases `[kinds]`."""

    weights: Array
    bias: Array

    def mixed(self, other: Weights) -> Weights:
        """Returns the mean with weights that get `SCORES_SHARE`; its probabilities are the geometric mean."""
        own = 1 - SCORES_SHARE
        return Weights(
            own * self.weights + SCORES_SHARE * other.weights, own * self.bias + SCORES_SHARE * other.bias
        )

    def shares(self, features: Array) -> Array:
        """Returns probabilities `[lines, kinds]`."""
        powers = features @ self.weights + self.bias
        exponentials = np.exp(powers - powers.max(axis=1, keepdims=True))
        shares: Array = exponentials / exponentials.sum(axis=1, keepdims=True)
        return shares


def question_of(line: Line) -> JudgeQuestion:
    return JudgeQuestion(
        response=line.answer,
        next_state=[{"role": "user", "content": line.text}],
        role="user",
        messages=[{"role": "user", "content": line.request}],
    )


def rules_of(lines: Sequence[Line]) -> npt.NDArray[np.int64]:
    """Returns the score of the rules for each line."""
    return np.array([vote_by_rules(question_of(line)).score or 0 for line in lines])


def features(lines: Sequence[Line], encoder: Encoder) -> tuple[Array, Array]:
    """Returns the features for scores and for forms, `[lines, features]` each."""
    of_scores, of_forms = [], []
    for line in lines:
        rules = None if line.rules_know else vote_by_rules(question_of(line))
        remark = Remark(text=line.text, request=line.request, answer=line.answer, rules=rules)
        of_scores.append(features_of(remark, encoder))
        of_forms.append(form_features_of(of_scores[-1], remark, encoder))
    return np.stack(of_scores), np.stack(of_forms)


def fit(lines: Sequence[Line], seen: Array, l2: float = L2) -> Weights:
    """Fits weights that maximise the likelihood of kinds and scores of the lines; for a line without a kind, of the
    score only."""
    kinds = torch.tensor(
        [[name == line.kind if line.kind else score == line.label for name, score in zip(KINDS, SCORE_OF, strict=True)]
         for line in lines]
    ).float()  # fmt: skip
    scores = torch.tensor([[float(score == line.label) for score in SCORE_OF] for line in lines])
    count = torch.tensor([OTHERS_WEIGHT if line.rules_know else 1.0 for line in lines])
    inputs = torch.tensor(seen)
    weights = torch.zeros(inputs.shape[1], len(KINDS), requires_grad=True)
    bias = torch.zeros(len(KINDS), requires_grad=True)
    search = torch.optim.LBFGS([weights, bias], max_iter=60, history_size=10, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        search.zero_grad()
        log_probs = torch.log_softmax(inputs @ weights + bias, dim=1)
        of_kind, of_score = (
            torch.logsumexp(log_probs + torch.log(one + 1e-9), dim=1) for one in (kinds, scores)
        )
        total = (
            -(count * (KIND_SHARE * of_kind + (1 - KIND_SHARE) * of_score)).sum() + l2 * (weights**2).sum()
        )
        total.backward()  # type: ignore[no-untyped-call]
        return total

    search.step(loss)
    return Weights(weights.detach().numpy(), bias.detach().numpy())


def without_writer(
    lines: Sequence[Line], seen: Array, writers: Sequence[str], not_fitted: Collection[str] = ()
) -> Array:
    """Returns probabilities `[lines, kinds]` by a fit without the writer of the line (and the other writers of its
    fold); 0 for lines of other writers.

    Args:
        not_fitted: writers that no fit may see.
    """
    of_line = np.array([line.writer for line in lines])
    hidden = np.isin(of_line, list(not_fitted))
    shares = np.zeros((len(lines), len(KINDS)), dtype=np.float32)
    for fold in range(FOLDS):
        left_out = np.isin(of_line, writers[fold::FOLDS])
        rest, own = np.flatnonzero(~left_out & ~hidden), np.flatnonzero(left_out)
        shares[own] = fit([lines[at] for at in rest], seen[rest]).shares(seen[own])
    return shares


def mixed(forms: Array, scores: Array) -> Array:
    """Returns probabilities `[lines, kinds]` of the mean of two weights, as `Weights.mixed`."""
    powers = forms ** (1 - SCORES_SHARE) * scores**SCORES_SHARE
    shares: Array = powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-12)
    return shares


def signs(shares: Array) -> Array:
    """Returns `[lines, 2]`: probabilities of a complaint and of thanks."""
    return np.stack([shares[:, sign == SCORE_OF].sum(axis=1) for sign in (-1, 1)], axis=1)


def about_forms(lines: Sequence[Line], shares: Array) -> Array:
    """Returns `[lines]`: the probability of the most likely kind if it is about a form that the answer lacks;
    otherwise 0."""
    best = [KINDS[one] for one in shares.argmax(axis=1)]
    fits = [kind in lacking(line.answer) for kind, line in zip(best, lines, strict=True)]
    return np.where(fits, shares.max(axis=1), 0).astype(np.float32)


def either_about_forms(lines: Sequence[Line], shares: Array, forms: Array) -> Array:
    """Returns `[lines]`: the larger of `about_forms` by the weights of scores and of forms."""
    return np.maximum(about_forms(lines, shares), about_forms(lines, forms))


def decided(
    lines: Sequence[Line], shares: Array, forms: Array, rules: npt.NDArray[np.int64], bounds: Bounds
) -> npt.NDArray[np.int64]:
    """Returns the score of each line, from probabilities `[lines, kinds]` by the weights of scores and of forms."""
    pairs = zip(rules.tolist(), signs(shares).tolist(), strict=True)
    scores = np.array([bounds.score(rule, low, high) for rule, (low, high) in pairs])
    return np.where(either_about_forms(lines, shares, forms) >= bounds.kind, -1, scores)


def measured(lines: Sequence[Line], scores: npt.NDArray[np.int64]) -> dict[str, float]:
    """Returns shares: feedback judged right, feedback with the wrong sign, new requests with any sign."""
    label = np.array([line.label for line in lines])
    new = np.array([line.kind == "next" for line in lines])
    return {
        "lines": len(lines),
        "right": _share(scores[~new] == label[~new]),
        "wrong_sign": _share(scores[~new] * label[~new] < 0),
        "requests_judged": _share(scores[new] != 0),
    }


def measured_forms(lines: Sequence[Line], shares: Array, bounds: Bounds) -> dict[str, float]:
    """Returns shares: complaints about a form with the right plain sentence, other messages without a complaint and
    with one."""
    taken = about_forms(lines, shares) >= bounds.kind
    kinds = [KINDS[one] if sure else "" for one, sure in zip(shares.argmax(axis=1), taken, strict=True)]
    pairs = [(line, kind) for line, kind in zip(lines, kinds, strict=True)]
    asked = [kind for kind in kinds if kind]
    right = [kind for line, kind in pairs if kind and kind == line.kind]
    wished = [line for line in lines if line.kind in POLES]
    mentions = [kind != "" for line, kind in pairs if line.label >= 0]
    return {
        "lines": len(wished),
        "recognised": round(len(right) / max(len(wished), 1), 4),
        "sentences_right": round(len(right) / max(len(asked), 1), 4),
        "mentions_matched": _share(np.array(mentions)),
    }


@dataclass(frozen=True)
class Tally:
    """Counts how scores agree with labelled lines.

    Attributes:
        label: `[lines]`, -1, 0 or 1.
        new: `[lines]`, whether a line is a new request.
    """

    label: npt.NDArray[np.int64]
    new: npt.NDArray[np.bool_]

    def of(self, part: npt.NDArray[np.bool_], scores: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns `[4]`: lines of a part with the right score, with the wrong sign, judged requests, and detected
        complaints."""
        right = ~self.new & (scores == self.label)
        counted = (
            right,
            ~self.new & (scores * self.label < 0),
            self.new & (scores != 0),
            right & (scores < 0),
        )
        return np.array([(part & one).sum() for one in counted])


def choose_bounds(
    lines: Sequence[Line], shares: Array, forms: Array, rules: npt.NDArray[np.int64], kind: float
) -> Bounds:
    """Returns the thresholds with the most feedback judged right, of those within `MOST_WRONG`, `MOST_JUDGED` and
    `LEAST_KEPT`. Lines that are no probable complaints about a form fall into four parts, and each threshold except
    `flip` concerns one of them.

    Args:
        shares, forms: probabilities `[lines, kinds]` by the weights of scores and of forms.
        kind: from `bound_of_kind`.
    """
    sure = either_about_forms(lines, shares, forms) >= kind
    tally = Tally(np.array([line.label for line in lines]), np.array([line.kind == "next" for line in lines]))
    low, high = signs(shares).T
    down, up = (rules == 0) & (low >= high), (rules == 0) & (low < high)
    silent = np.stack([tally.of(down, np.where(sure | (low >= step), -1, 0)) for step in _STEPS])[:, None]
    silent = silent + np.stack(
        [tally.of(up, np.where(sure, -1, np.where(high >= step, 1, 0))) for step in _STEPS]
    )
    new, feedback = tally.new.sum(), (~tally.new).sum()
    complaints = tally.of(rules < 0, rules)[3]
    best, chosen = -1.0, Bounds(1, 1, 0, 0, 1.01, kind)
    for keep_low, keep_high, flip in itertools.product(_KEEPS, _KEEPS, _FLIPS):
        stays = np.where(high >= flip, 1, np.where(low >= keep_low, -1, 0))
        kept = tally.of(rules < 0, np.where(sure, -1, stays))
        thanked = tally.of(rules > 0, np.where(sure | (low >= flip), -1, np.where(high >= keep_high, 1, 0)))
        right, wrong, _, _ = np.moveaxis(silent + kept + thanked, -1, 0)
        fits = (wrong <= MOST_WRONG * feedback) & (silent[..., 2] <= MOST_JUDGED * new)
        if kept[3] < LEAST_KEPT * complaints or not fits.any() or right[fits].max() <= best:
            continue
        best = right[fits].max()
        row, column = np.argwhere(fits & (right == best))[0]
        chosen = Bounds(_STEPS[row], _STEPS[column], keep_low, keep_high, flip, kind)
    return chosen


def bound_of_kind(lines: Sequence[Line], shares: Array) -> float:
    """Returns the least probability above which plain sentences stay within `SURE_OF_KIND` and `MOST_MENTIONS`."""
    kinds = np.array([KINDS.index(line.kind) if line.kind else -1 for line in lines])
    best, likely = shares.argmax(axis=1), about_forms(lines, shares)
    no_complaint = np.array([line.label >= 0 for line in lines])
    for step in range(35):
        bound = round(0.3 + 0.02 * step, 2)
        taken = likely >= bound
        mentions = (taken & no_complaint).sum()
        if (
            taken.any()
            and (best[taken] == kinds[taken]).mean() >= SURE_OF_KIND
            and mentions <= MOST_MENTIONS * no_complaint.sum()
        ):
            return bound
    return 1.0


def _share(hits: npt.NDArray[np.bool_]) -> float:
    return round(float(hits.mean()), 4) if hits.size else 0.0
