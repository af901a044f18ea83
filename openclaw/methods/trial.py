"""Tries a method before a run: calls it for turns as a judge leaves them.

    python -m openclaw.methods my_method.py:sample_from_judged_turn --model-path FOLDER

The turns and judgements are invented; the function is really called, and its result is checked as in a run.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openclaw.errors import ConfigError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import Method, MethodContext, Options
from openclaw.types import Drop, Judgement, Message, SampleDraft, Turn, Vote

QUESTION = "Tom has 12 apples and buys 7 more. How many apples does Tom have?"
ANSWER = "12 + 7 = 19"
HINT = "Please write whole sentences."


@dataclass(frozen=True)
class Case:
    """A message after an answer, and a judge's verdict on it. `hint`: the change that the user wants."""

    name: str
    next_message: str
    score: float
    hint: str | None = None


CASES = (
    Case("praise", "Thank you, that is right!", 1.0),
    Case("a complaint with a hint", f"I do not like that. {HINT}", -1.0, HINT),
    Case("a complaint without one", "No, that is wrong.", -1.0),
    Case("a new task", "What is the capital of France?", 0.0),
)


def tried(method: Method, prompts: HintedPrompts | None, options: Options) -> Iterator[tuple[Case, str]]:
    """Yields each case, and a text about the method's result for it.

    Args:
        prompts: prompts of the model; None: made-up ids, which methods with hints cannot use.

    Raises:
        ConfigError: the method raises, or returns samples that a run could not train on; the message names the case.
    """
    for case in CASES:
        turn = _turn(case, prompts)
        needs = method.needs(options)
        try:
            made = method.function(
                turn, _judgements(case, needs.eval, needs.hint), MethodContext(prompts, options)
            )
        except ConfigError:
            raise
        except Exception as error:  # any exception of a user's function is the result of the trial
            raise ConfigError(f"{case.name}: {method.name} raised {type(error).__name__}: {error}") from error
        yield case, _checked(made, turn, f"{case.name}: {method.name}")


def _checked(made: object, turn: Turn, where: str) -> str:
    if isinstance(made, Drop):
        return f"dropped: {made.reason}"
    if not isinstance(made, SampleDraft):
        raise ConfigError(f"{where} returned a {type(made).__name__}, neither a SampleDraft nor a Drop")
    if made.turn_id != turn.id:
        raise ConfigError(f"{where}: turn_id must be the id of the turn, got {made.turn_id!r}")
    rewards = made.reward if isinstance(made.reward, dict) else {"reward": made.reward}
    if not all(math.isfinite(value) for value in rewards.values()):
        raise ConfigError(f"{where}: rewards must be finite numbers, not {made.reward}")
    length = len(turn.completion_ids)
    if made.loss_mask is not None and (len(made.loss_mask) != length or set(made.loss_mask) - {0, 1}):
        raise ConfigError(f"{where}: loss_mask must hold a 0 or 1 for each of the {length} sampled ids")
    for candidate in made.teacher_tokens_candidates or ():
        if candidate[-length:] != turn.completion_ids:
            raise ConfigError(f"{where}: a teacher's candidate does not end with the sampled ids")
    hints = len(made.teacher_tokens_candidates or ())
    listing = ", ".join(f"{name} {value:g}" for name, value in rewards.items())
    return f"a sample: {listing}" + (f", hinted prompts for the teacher: {hints}" if hints else "")


def _judgements(case: Case, score: bool, hint: bool) -> list[Judgement]:
    """Returns the judgements that the method requests."""
    judgements = []
    if score:
        votes = [Vote(score=int(case.score))]
        judgements.append(Judgement(kind="eval", score=case.score, votes=votes, judge="made up"))
    if hint:
        hints = [case.hint] if case.hint else []
        votes = [Vote(score=1 if hints else -1, hint=case.hint)]
        judgements.append(
            Judgement(kind="hint", score=float(bool(hints)), votes=votes, judge="made up", hints=hints)
        )
    return judgements


def _turn(case: Case, prompts: HintedPrompts | None) -> Turn:
    messages: list[Message] = [{"role": "user", "content": QUESTION}]
    completion = prompts.tokenizer.encode(ANSWER) if prompts else list(range(10, 20))
    turn = Turn(
        completion_id=f"trial-{case.name}",
        session_id="trial",
        messages=messages,
        prompt_ids=list(range(10)),
        sampling={"temperature": 1.0},
        turn_index=0,
        response_message={"role": "assistant", "content": ANSWER},
        completion_ids=completion,
        completion_log_probs=[-1.0] * len(completion),
        version_spans=[(0, 0, len(completion))],
        finish_reason="stop",
        transcript_digest="",
        next_state=[{"role": "user", "content": case.next_message}],
    )
    if prompts is None:
        return turn
    return dataclasses.replace(turn, prompt_ids=_without_answer(prompts.answered(turn, messages), completion))


def _without_answer(ids: Sequence[int], completion: Sequence[int]) -> list[int]:
    return list(ids[: len(ids) - len(completion)])
