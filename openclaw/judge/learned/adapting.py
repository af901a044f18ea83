"""Adapts the head to examples, and measures it on held-out sessions.

The change of the weights is a linear combination of the examples' features (the representer theorem, Schölkopf 2001),
so it has one unknown for each example and kind. Only word weights change, and L2 keeps the change small: messages
unlike any example are classified as before.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from openclaw.errors import ConfigError
from openclaw.judge.sentences.features import OF_WORDS
from openclaw.judge.sentences.head import KINDS, SCORES, Head, shares_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from openclaw.judge.learned.examples import Example

    Array = npt.NDArray[np.float32]

FEWEST, FOLDS = 20, 5
"""Fewest examples, from at least two sessions: with fewer, accuracy on other sessions cannot be estimated."""
L2, STEPS = 0.5, 300
"""Weight of the squared change, and steps of gradient descent."""


def change(features: Array, powers: Array, examples: Sequence[Example]) -> Array:
    """Returns the change of the weights `[features, kinds]`, found by gradient descent.

    Args:
        features: `[examples, features]`.
        powers: `[examples, kinds]`, logits of the shipped head.
    """
    import numpy as np

    words = np.zeros_like(features)
    words[:, -OF_WORDS:] = features[:, -OF_WORDS:]
    kernel = words @ words.T
    weight = np.array([[one.weight] for one in examples], dtype=np.float32)
    fits = np.array([[SCORES.get(kind, -1) == one.label for kind in KINDS] for one in examples])
    # The second derivative by a logit is at most half of the weight; row sums bound the largest eigenvalue.
    step = 1 / (0.5 * float(weight.max() * np.abs(kernel).sum(axis=1).max()) + L2)
    delta = np.zeros_like(powers)
    for _ in range(STEPS):
        shares = shares_of((powers + kernel @ delta).astype(np.float32))
        right = shares * fits
        slope = shares - right / np.maximum(right.sum(axis=1, keepdims=True), 1e-9)
        delta -= step * (weight * slope + L2 * delta)
    combined: Array = words.T @ delta
    return combined


def measured(
    head: Head, features: Array, form_features: Array, examples: Sequence[Example]
) -> dict[str, object]:
    """Returns the accuracy of the shipped and of an adapted head, the latter on held-out sessions: shares of right
    scores and of wrong signs. Raises ConfigError for too few examples."""
    import numpy as np

    groups = {one.group for one in examples}
    if len(examples) < FEWEST or len(groups) < 2:
        raise ConfigError(
            f"{len(examples)} rated messages from {len(groups)} sessions are too few to adapt the head; at least "
            f"{FEWEST} messages from 2 sessions are needed"
        )
    folds = np.array([fold_of(one) for one in examples])
    powers, of_form = head.powers(features), head.form_powers(form_features)
    adapted, adapted_form = powers.copy(), of_form.copy()
    for fold in set(folds.tolist()):
        rest = np.flatnonzero(folds != fold).tolist()
        added = change(features[rest], powers[rest], [examples[at] for at in rest])
        adapted[folds == fold] += features[folds == fold] @ added
        adapted_form[folds == fold] += form_features[folds == fold] @ added
    return {
        "examples": len(examples),
        "sessions": len(groups),
        "shipped": _agreement(head, powers, of_form, examples),
        "adapted": _agreement(head, adapted, adapted_form, examples),
    }


def fold_of(example: Example) -> int:
    """Returns a fold that is the same for all examples of a session."""
    return zlib.crc32(example.group.encode()) % FOLDS


def _agreement(
    head: Head, powers: Array, form_powers: Array, examples: Sequence[Example]
) -> dict[str, float]:
    scores = []
    for row, form_row, one in zip(powers, form_powers, examples, strict=True):
        reading = head.of_powers(row, form_row)
        rules = (one.remark.rules.score if one.remark.rules else 0) or 0
        scores.append(head.bounds.judged(rules, reading, one.remark.answer))
    pairs = [(one.label, score) for one, score in zip(examples, scores, strict=True)]
    return {
        "right": round(sum(label == score for label, score in pairs) / len(pairs), 4),
        "wrong_sign": round(sum(label * score < 0 for label, score in pairs) / len(pairs), 4),
    }
