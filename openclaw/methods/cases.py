"""The four cases of a turn with a score, a hint, both or neither. One turn becomes at most one sample."""

from __future__ import annotations

from openclaw.errors import ConfigError
from openclaw.methods.method import MethodContext, Needs, Options, TeacherKind, eval_score
from openclaw.types import Drop, Judgement, SampleDraft, Turn


def draft(
    turn: Turn,
    judgements: list[Judgement],
    hints: list[str],
    context: MethodContext,
    w_rl: float,
    w_opd: float,
) -> SampleDraft | Drop:
    """Returns a sample with the turn's reward and its teachers.

        score -1 and a hint   `opd_rl`  reward -1, hinted teachers
        a hint alone          `opd`     reward 0, hinted teachers
        score ±1 alone        `rl`      reward ±1, the teacher sees the plain prompt
        neither               dropped, counted as `no_signal`

    A liked turn has no hints (`method.hints_of`). A weight of 0 disables its half: no reward, or no teacher.

    Args:
        hints: hints to use, shortest first.
    """
    evaluation = eval_score(judgements)
    score = (evaluation or 0.0) if w_rl else 0.0
    candidates = context.candidates(turn, hints) if w_opd else None
    if not score and not candidates:
        return Drop("no_signal")
    case = ("opd_rl" if score else "opd") if candidates else "rl"
    return SampleDraft(
        turn_id=turn.id,
        reward={"score": float(score)},
        teacher_tokens_candidates=candidates,
        metadata={"case": case} if evaluation is None else {"case": case, "eval_score": evaluation},
    )


def needs_of(options: Options, w_rl: float, w_opd: float, teacher: TeacherKind) -> Needs:
    """Returns the needs of the four cases. Raises ConfigError if scores are trained on but not requested."""
    if w_rl and not options.get("eval_mode", 1):
        raise ConfigError(
            "the reward needs the score of each turn: set OPENCLAW_EVAL_MODE=1, or the reward's weight to 0"
        )
    return Needs(eval=w_rl != 0, hint=w_opd != 0, teacher=teacher if w_opd else "none")
