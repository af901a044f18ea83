"""Invented samples for contract tests: two groups of answers to sums, with tokens, log-probs, masks and rewards."""

from __future__ import annotations

from slime.types import Sample, SampleStatus

VOCABULARY = 16


def example_group(group: int = 0, size: int = 3, *, rewarded: bool = True) -> list[Sample]:
    """Returns answers of different lengths to one prompt, the first one right; one has a token that the model did not
    sample."""
    return [_sample(group, number, size, rewarded) for number in range(size)]


def example_groups(rewarded: bool = True) -> list[list[Sample]]:
    return [example_group(0, rewarded=rewarded), example_group(1, rewarded=rewarded)]


def _sample(group: int, number: int, size: int, rewarded: bool) -> Sample:
    length = number + 2
    tokens = [(3 * group + number + position) % VOCABULARY for position in range(4 + length)]
    mask = [1] * length
    mask[0] = int(number != 1)
    return Sample(
        group_index=group,
        index=group * size + number,
        prompt=f"{group + 1}+1=",
        tokens=tokens,
        response=str(group + 2 + number),
        response_length=length,
        label=str(group + 2),
        reward=float(number == 0) if rewarded else None,
        loss_mask=mask,
        rollout_log_probs=[-0.5 * kept for kept in mask],
        version_spans=[(0, 0, length)],
        status=SampleStatus.COMPLETED,
        metadata={"next_state": "thanks"},
    )
