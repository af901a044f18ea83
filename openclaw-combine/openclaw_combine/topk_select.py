"""The hybrid: several hints, each with a teacher; the trainer selects among them and distils over few tokens, in
addition to Binary RL."""

from __future__ import annotations

from openclaw.methods.cases import draft, needs_of
from openclaw.methods.method import MethodContext, Needs, Options, asks, chosen, hints_of
from openclaw.types import Drop, Judgement, SampleDraft, Turn
from openclaw_combine.flags import TopkSelectFlags

MOST_HINTS = 3
"""Most hints a turn, if --hint-m is not set."""


def needs(options: Options) -> Needs:
    flags = chosen(TopkSelectFlags, options)
    return needs_of(options, flags.topk_w_rl, flags.topk_w_opd, "topk")


@asks(needs, options=("topk_w_rl", "topk_w_opd", "hint_m", "distill_topk"))
def sample_from_judged_turn(
    turn: Turn, judgements: list[Judgement], context: MethodContext
) -> SampleDraft | Drop:
    """Returns one sample a turn with its hints, shortest first, at most `hint_m`; see `cases.draft`."""
    flags = chosen(TopkSelectFlags, context.options)
    hints = hints_of(judgements)[: int(context.options.get("hint_m", MOST_HINTS))]
    return draft(turn, judgements, hints, context, flags.topk_w_rl, flags.topk_w_opd)
