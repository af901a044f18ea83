"""On-policy distillation of the whole distribution: the teacher's K best tokens and a bin for the rest."""

from __future__ import annotations

from openclaw.methods.method import MethodContext, Needs, Options, asks
from openclaw.types import Drop, Judgement, SampleDraft, Turn
from openclaw_opd.opd import distilled


def needs(options: Options) -> Needs:
    return Needs(eval=bool(options.get("eval_mode", 1)), hint=True, teacher="topk")


@asks(needs, options=("distill_topk",))
def sample_from_judged_turn(
    turn: Turn, judgements: list[Judgement], context: MethodContext
) -> SampleDraft | Drop:
    """Returns a sample with the longest hint, as in token-level distillation; see `opd.distilled`."""
    return distilled(turn, judgements, context)
