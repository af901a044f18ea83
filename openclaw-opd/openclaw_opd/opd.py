"""On-policy distillation of the sampled tokens: the same model, with the hint in its prompt, is the teacher (arXiv
2603.10165)."""

from __future__ import annotations

from openclaw.methods.method import MethodContext, Needs, Options, asks, eval_score, hints_of
from openclaw.types import Drop, Judgement, SampleDraft, Turn


def needs(options: Options) -> Needs:
    return Needs(eval=bool(options.get("eval_mode", 1)), hint=True, teacher="token")


@asks(needs)
def sample_from_judged_turn(
    turn: Turn, judgements: list[Judgement], context: MethodContext
) -> SampleDraft | Drop:
    """Returns a sample distilled from the turn's longest hint; other turns are dropped and counted.

    The reward is 1.0 and trains nothing: the advantage of a token is the teacher's log-prob minus the student's. The
    turn's score, if it was requested, is kept for the metric of user satisfaction.
    """
    return distilled(turn, judgements, context)


def distilled(turn: Turn, judgements: list[Judgement], context: MethodContext) -> SampleDraft | Drop:
    """Returns a sample whose teacher has the longest hint in its prompt; else a drop: `no_hint`, or `hint_not_placed`
    (no room for it)."""
    hints = hints_of(judgements)
    if not hints:
        return Drop("no_hint")
    candidates = context.candidates(turn, hints[-1:])
    if not candidates:
        return Drop("hint_not_placed")
    score = eval_score(judgements)
    return SampleDraft(
        turn_id=turn.id,
        reward={"score": 1.0},
        teacher_tokens_candidates=candidates,
        metadata={} if score is None else {"eval_score": score},
    )
