"""Binary RL and token-level distillation in one sample: advantage = w_opd (teacher - student) + w_rl reward."""

from __future__ import annotations

from openclaw.methods.cases import draft, needs_of
from openclaw.methods.method import MethodContext, Needs, Options, asks, chosen, hints_of
from openclaw.types import Drop, Judgement, SampleDraft, Turn
from openclaw_combine.flags import CombineFlags


def needs(options: Options) -> Needs:
    flags = chosen(CombineFlags, options)
    return needs_of(options, flags.combine_w_rl, flags.combine_w_opd, "token")


@asks(needs, options=("combine_w_rl", "combine_w_opd"))
def sample_from_judged_turn(
    turn: Turn, judgements: list[Judgement], context: MethodContext
) -> SampleDraft | Drop:
    """Returns one sample a turn, with the longest hint; see `cases.draft`."""
    flags = chosen(CombineFlags, context.options)
    hints = hints_of(judgements)[-1:]
    return draft(turn, judgements, hints, context, flags.combine_w_rl, flags.combine_w_opd)
