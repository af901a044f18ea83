"""Binary RL and token-level distillation in one sample: advantage = w_opd (teacher - student) + w_rl reward."""

from __future__ import annotations

from openclaw.methods.cases import draft, needs_of
from openclaw.methods.method import MethodContext, Needs, Options, asks, hints_of
from openclaw.types import Drop, Judgement, SampleDraft, Turn

W_RL, W_OPD = "combine_w_rl", "combine_w_opd"


def needs(options: Options) -> Needs:
    return needs_of(options, options.get(W_RL, 1.0), options.get(W_OPD, 1.0), "token")


@asks(needs, options=(W_RL, W_OPD))
def sample_from_judged_turn(
    turn: Turn, judgements: list[Judgement], context: MethodContext
) -> SampleDraft | Drop:
    """One sample a turn, with the longest hint; see `combine_cases.draft`."""
    w_rl, w_opd = context.option(W_RL, 1.0), context.option(W_OPD, 1.0)
    return draft(turn, judgements, hints_of(judgements)[-1:], context, w_rl, w_opd)
