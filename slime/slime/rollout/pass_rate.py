"""pass@k: the chance that one of k answers to a prompt solves it."""

from __future__ import annotations

import math
from collections.abc import Sequence

SOLVED = 1.0  # an answer with at least this reward solves its prompt


def pass_rates(scores: Sequence[float], group_size: int) -> dict[int, float]:
    """pass@k for k = 1, 2, 4, ... and the group size: the mean over groups of `pass_at_k`.

    Args:
        scores: [groups * group_size], group after group; a score of 1 or more solves the prompt.
    """
    solved = [
        sum(score >= SOLVED for score in scores[start : start + group_size])
        for start in range(0, len(scores), group_size)
    ]
    ks = sorted(
        {2**power for power in range(group_size.bit_length()) if 2**power <= group_size} | {group_size}
    )
    return {k: sum(pass_at_k(group_size, count, k) for count in solved) / len(solved) for k in ks}


def pass_at_k(n: int, solved: int, k: int) -> float:
    """The unbiased estimate of the chance that one of k answers solves a prompt, from `solved` of n that did.

    1 - C(n - solved, k) / C(n, k), of Chen et al., "Evaluating Large Language Models Trained on Code" (2021).
    """
    return 1.0 - math.comb(n - solved, k) / math.comb(n, k)
