"""The hybrid: several hints, each a teacher; the trainer selects among them and distils over few tokens, beside
Binary RL."""

from __future__ import annotations

from openclaw.methods.cases import draft, needs_of
from openclaw.methods.method import MethodContext, Needs, Options, asks, hints_of
from openclaw.types import Drop, Judgement, SampleDraft, Turn

W_RL, W_OPD, MOST_HINTS = "topk_w_rl", "topk_w_opd", "hint_m"


def needs(options: Options) -> Needs:
    return needs_of(options, options.get(W_RL, 1.0), options.get(W_OPD, 1.0), "topk")


@asks(needs, options=(W_RL, W_OPD, MOST_HINTS, "distill_topk"))
def sample_from_judged_turn(
    turn: Turn, judgements: list[Judgement], context: MethodContext
) -> SampleDraft | Drop:
    """One sample a turn, with its hints, the shortest first and at most `hint_m` of them; see `combine_cases.draft`."""
    w_rl, w_opd = context.option(W_RL, 1.0), context.option(W_OPD, 1.0)
    hints = hints_of(judgements)[: int(context.option(MOST_HINTS, 3))]
    return draft(turn, judgements, hints, context, w_rl, w_opd)
