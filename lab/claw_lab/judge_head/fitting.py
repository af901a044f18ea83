"""Fits the head, and chooses its bounds on writers that each fit has not seen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from claw_lab.judge_head.lines import Line
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.rules.judge import vote_by_rules
from openclaw.judge.sentences.encoder import Encoder
from openclaw.judge.sentences.features import Remark, features_of
from openclaw.judge.sentences.head import KINDS, SCORES, Bounds

LABELS = (-1, 0, 1)
SCORE_OF = np.array([SCORES.get(kind, -1) for kind in KINDS])
L2 = 0.15
OTHERS_WEIGHT = 0.7
"""Of a line of another list, relative to one of data/written."""
KIND_SHARE = 0.5
"""Share of the loss that is about the kind; the rest is about the score."""
MOST_WRONG, MOST_JUDGED = 0.02, 0.05
"""Largest share of feedback with the wrong sign, and of new requests with any. The requests of these lists are hard: they
speak of lengths, mistakes and thanks. The rules judge a ninth of them."""
SURE_OF_KIND = 0.95
"""Least share of right kinds among those of which a plain sentence is made."""
FORMS = ("brief", "long", "prose", "list", "greeting")

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Weights:
    """`[features, kinds]` and `[kinds]`."""

    weights: Array
    bias: Array

    def shares(self, features: Array) -> Array:
        """`[lines, kinds]`: probabilities."""
        powers = features @ self.weights + self.bias
        found = np.exp(powers - powers.max(axis=1, keepdims=True))
        shares: Array = found / found.sum(axis=1, keepdims=True)
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


def features(lines: Sequence[Line], encoder: Encoder) -> Array:
    """`[lines, features]`."""

    def said(line: Line) -> Remark:
        rules = None if line.rules_know else vote_by_rules(question_of(line))
        return Remark(text=line.text, request=line.request, answer=line.answer, rules=rules)

    return np.stack([features_of(said(line), encoder) for line in lines])


def fit(lines: Sequence[Line], seen: Array, l2: float = L2) -> Weights:
    """Returns the weights that make kinds and scores of the lines likely; of a line without a kind the score alone."""
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
        given = torch.log_softmax(inputs @ weights + bias, dim=1)
        of_kind, of_score = (torch.logsumexp(given + torch.log(one + 1e-9), dim=1) for one in (kinds, scores))
        found = (
            -(count * (KIND_SHARE * of_kind + (1 - KIND_SHARE) * of_score)).sum() + l2 * (weights**2).sum()
        )
        found.backward()  # type: ignore[no-untyped-call]
        return found

    search.step(loss)
    return Weights(weights.detach().numpy(), bias.detach().numpy())


def without_writer(lines: Sequence[Line], seen: Array, writers: Sequence[str], l2: float = L2) -> Array:
    """`[lines, kinds]`: probabilities by a fit without the writer of the line; of other writers 0."""
    of_line = np.array([line.writer for line in lines])
    found = np.zeros((len(lines), len(KINDS)), dtype=np.float32)
    for writer in writers:
        rest, own = np.flatnonzero(of_line != writer), np.flatnonzero(of_line == writer)
        found[own] = fit([lines[at] for at in rest], seen[rest], l2).shares(seen[own])
    return found


def signs(shares: Array) -> Array:
    """`[lines, 2]`: probabilities of a complaint and of thanks."""
    return np.stack([shares[:, sign == SCORE_OF].sum(axis=1) for sign in (-1, 1)], axis=1)


def decided(shares: Array, rules: npt.NDArray[np.int64], bounds: Bounds) -> npt.NDArray[np.int64]:
    """Returns the score of each line."""
    pairs = zip(rules.tolist(), signs(shares).tolist(), strict=True)
    return np.array([bounds.score(rule, low, high) for rule, (low, high) in pairs])


def measured(lines: Sequence[Line], scores: npt.NDArray[np.int64]) -> dict[str, float]:
    """Shares: feedback that is right and with the wrong sign; new requests that are judged at all."""
    label = np.array([line.label for line in lines])
    new = np.array([line.kind == "next" for line in lines])
    return {
        "lines": len(lines),
        "right": _share(scores[~new] == label[~new]),
        "wrong_sign": _share(scores[~new] * label[~new] < 0),
        "requests_judged": _share(scores[new] != 0),
    }


def choose_bounds(lines: Sequence[Line], shares: Array, rules: npt.NDArray[np.int64]) -> Bounds:
    """Returns the bounds with which most feedback is right, of those that keep to `MOST_WRONG`."""
    best, chosen = -1.0, Bounds(1, 1, 0, 1, 1)
    steps = [round(0.5 + 0.025 * step, 3) for step in range(20)]
    for low, high, keep, flip in itertools.product(
        steps, steps, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7), (0.8, 0.9, 1.01)
    ):
        bounds = Bounds(low, high, keep, flip, 1)
        found = measured(lines, _fast(shares, rules, bounds))
        fits = found["wrong_sign"] <= MOST_WRONG and found["requests_judged"] <= MOST_JUDGED
        if fits and found["right"] > best:
            best, chosen = found["right"], bounds
    return Bounds(chosen.low, chosen.high, chosen.keep, chosen.flip, _bound_of_kind(lines, shares))


def _fast(shares: Array, rules: npt.NDArray[np.int64], bounds: Bounds) -> npt.NDArray[np.int64]:
    """As `decided`, for all lines at once."""
    low, high = signs(shares).T
    silent = np.where(low >= high, np.where(low >= bounds.low, -1, 0), np.where(high >= bounds.high, 1, 0))
    own, against = np.where(rules < 0, low, high), np.where(rules < 0, high, low)
    ruled = np.where(against >= bounds.flip, -rules, np.where(own >= bounds.keep, rules, 0))
    return np.where(rules == 0, silent, ruled)


def _bound_of_kind(lines: Sequence[Line], shares: Array) -> float:
    """Returns the least probability above which the kinds of form are right often enough."""
    kinds = np.array([KINDS.index(line.kind) if line.kind else -1 for line in lines])
    best, top = shares.argmax(axis=1), shares.max(axis=1)
    of_form = np.isin(best, [KINDS.index(form) for form in FORMS])
    for step in range(30):
        bound = round(0.3 + 0.02 * step, 2)
        taken = of_form & (top >= bound)
        if taken.any() and (best[taken] == kinds[taken]).mean() >= SURE_OF_KIND:
            return bound
    return 1.0


def _share(hits: npt.NDArray[np.bool_]) -> float:
    return round(float(hits.mean()), 4) if hits.size else 0.0
