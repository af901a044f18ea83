"""Binary RL: how a judged turn becomes a training sample."""

from __future__ import annotations

from openclaw.types import Drop, Judgement, SampleDraft, Turn


def sample_from_judged_turn(turn: Turn, judgements: list[Judgement]) -> SampleDraft | Drop:
    """Returns a sample whose tokens all have the turn's score, +1 or -1, as advantage.

    A turn that the judge found neutral (0) has no gradient, so it is dropped and counted instead of filling a batch.
    """
    score = next((judgement.score for judgement in judgements if judgement.kind == "eval"), None)
    if score is None:
        return Drop("not_judged")
    if score == 0:
        return Drop("neutral_score")
    return SampleDraft(turn_id=turn.id, reward={"score": float(score)}, metadata={"eval_score": score})
