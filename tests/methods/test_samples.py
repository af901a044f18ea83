"""The sample that each method creates from a judged turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from openclaw.errors import ConfigError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import Method, MethodContext, Needs, hints_of
from openclaw.types import Drop, Judgement, SampleDraft, Turn, Vote
from openclaw_combine import combine, topk_select
from openclaw_opd import opd, opd_topk
from openclaw_rl import binary_rl

MakeTurn = Callable[..., Turn]
SHORT, LONG = "Use sentences.", "Use plain sentences and no list."
OPD = [opd.sample_from_judged_turn, opd_topk.sample_from_judged_turn]
BOTH = [combine.sample_from_judged_turn, topk_select.sample_from_judged_turn]


def scored(score: float) -> Judgement:
    return Judgement(kind="eval", score=score, votes=[Vote(score=int(score))], judge="test")


def hinted(*hints: str) -> Judgement:
    return Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=list(hints))


@pytest.mark.parametrize(
    ("path", "needs"),
    [
        ("openclaw_rl.binary_rl:sample_from_judged_turn", Needs()),
        ("openclaw_opd.opd:sample_from_judged_turn", Needs(hint=True, teacher="token")),
        ("openclaw_opd.opd_topk:sample_from_judged_turn", Needs(hint=True, teacher="topk")),
        ("openclaw_combine.combine:sample_from_judged_turn", Needs(hint=True, teacher="token")),
        ("openclaw_combine.topk_select:sample_from_judged_turn", Needs(hint=True, teacher="topk")),
    ],
)
def test_a_method_declares_what_it_needs_of_a_turn(path: str, needs: Needs) -> None:
    assert Method.load(path).needs({}) == needs


def test_distillation_without_evaluation_requests_only_hints() -> None:
    assert Method.load("openclaw_opd.opd:sample_from_judged_turn").needs({"eval_mode": 0}) == Needs(
        eval=False, hint=True, teacher="token"
    )


@pytest.mark.parametrize(("path", "prefix"), [("combine", "combine"), ("topk_select", "topk")])
def test_a_weight_of_0_disables_the_requests_of_its_term(path: str, prefix: str) -> None:
    needs = Method.load(f"openclaw_combine.{path}:sample_from_judged_turn").needs
    assert needs({f"{prefix}_w_opd": 0.0}) == Needs(eval=True, hint=False, teacher="none")
    assert needs({f"{prefix}_w_rl": 0.0}).eval is False
    with pytest.raises(ConfigError, match="OPENCLAW_EVAL_MODE=1"):
        needs({"eval_mode": 0})
    assert needs({"eval_mode": 0, f"{prefix}_w_rl": 0.0}).hint is True


def test_binary_rl_trains_on_the_score_and_drops_neutral_turns(make_turn: MakeTurn) -> None:
    turn = make_turn()
    draft = binary_rl.sample_from_judged_turn(turn, [scored(-1)])
    assert isinstance(draft, SampleDraft) and draft.reward == {"score": -1.0}
    assert draft.teacher_tokens_candidates is None
    assert binary_rl.sample_from_judged_turn(turn, [scored(0)]) == Drop("neutral_score")


@pytest.mark.parametrize("sample", OPD)
def test_opd_learns_from_the_longest_hint(
    sample: Callable[..., SampleDraft | Drop],
    make_turn: MakeTurn,
    context: MethodContext,
    prompts: HintedPrompts,
) -> None:
    turn = make_turn()
    draft = sample(turn, [scored(-1), hinted(SHORT, LONG)], context)
    assert isinstance(draft, SampleDraft)
    assert draft.teacher_tokens_candidates == [prompts.candidate(turn, LONG)]
    assert draft.metadata == {"eval_score": -1}


@pytest.mark.parametrize("sample", OPD)
def test_opd_drops_a_turn_without_a_hint(
    sample: Callable[..., SampleDraft | Drop], make_turn: MakeTurn, context: MethodContext
) -> None:
    assert sample(make_turn(), [scored(1), hinted()], context) == Drop("no_hint")
    assert sample(make_turn(), [scored(1), hinted(LONG)], context) == Drop("no_hint")
    raw = make_turn(messages=[{"role": "user", "content": "Once", "format": "raw"}])
    assert sample(raw, [hinted(LONG)], context) == Drop("hint_not_placed")


@pytest.mark.parametrize("sample", BOTH)
@pytest.mark.parametrize(
    ("judgements", "reward", "case", "teachers"),
    [
        ([scored(-1), hinted(LONG)], -1.0, "opd_rl", 1),
        ([scored(0), hinted(LONG)], 0.0, "opd", 1),
        ([scored(1), hinted()], 1.0, "rl", 0),
    ],
)
def test_a_turn_becomes_one_sample_of_its_case(
    sample: Callable[..., SampleDraft | Drop], make_turn: MakeTurn, context: MethodContext,
    judgements: list[Judgement], reward: float, case: str, teachers: int,
) -> None:  # fmt: skip
    draft = sample(make_turn(), judgements, context)
    assert isinstance(draft, SampleDraft)
    assert draft.reward == {"score": reward} and draft.metadata["case"] == case
    assert draft.teacher_tokens_candidates is not None and len(draft.teacher_tokens_candidates) == teachers


@pytest.mark.parametrize("sample", BOTH)
def test_a_turn_with_neither_score_nor_hint_is_dropped(
    sample: Callable[..., SampleDraft | Drop], make_turn: MakeTurn, context: MethodContext
) -> None:
    assert sample(make_turn(), [scored(0), hinted()], context) == Drop("no_signal")


def test_without_a_reward_weight_a_score_alone_is_no_training_signal(
    make_turn: MakeTurn, prompts: HintedPrompts
) -> None:
    context = MethodContext(prompts, {"combine_w_rl": 0.0})
    assert combine.sample_from_judged_turn(make_turn(), [scored(1), hinted()], context) == Drop("no_signal")


def test_without_weight_no_teacher_is_used(make_turn: MakeTurn) -> None:
    context = MethodContext(None, {"topk_w_opd": 0.0})
    draft = topk_select.sample_from_judged_turn(make_turn(), [scored(1), hinted(LONG)], context)
    assert isinstance(draft, SampleDraft) and draft.teacher_tokens_candidates is None


def test_combine_uses_the_longest_hint_and_the_hybrid_all_hints_shortest_first(
    make_turn: MakeTurn, prompts: HintedPrompts
) -> None:
    turn, judgements = make_turn(), [scored(-1), hinted(LONG, SHORT, "No bold words, please.")]
    one = combine.sample_from_judged_turn(turn, judgements, MethodContext(prompts))
    two = topk_select.sample_from_judged_turn(turn, judgements, MethodContext(prompts, {"hint_m": 2}))
    assert isinstance(one, SampleDraft) and isinstance(two, SampleDraft)
    assert one.teacher_tokens_candidates == [prompts.candidate(turn, LONG)]
    assert two.teacher_tokens_candidates == [
        prompts.candidate(turn, SHORT),
        prompts.candidate(turn, "No bold words, please."),
    ]


def test_equal_hints_of_user_and_judge_count_once() -> None:
    assert hints_of([hinted(LONG, SHORT), scored(-1), hinted(SHORT)]) == [SHORT, LONG]


@pytest.mark.parametrize("sample", BOTH)
def test_praise_never_becomes_a_hint(
    sample: Callable[..., SampleDraft | Drop], make_turn: MakeTurn, context: MethodContext
) -> None:
    draft = sample(make_turn(), [scored(1), hinted("That is just what I wanted.")], context)
    assert isinstance(draft, SampleDraft)
    assert (draft.reward, draft.teacher_tokens_candidates) == ({"score": 1.0}, [])
    assert draft.metadata == {"case": "rl", "eval_score": 1}


def test_a_hook_with_wrong_parameters_is_rejected_as_a_method() -> None:
    with pytest.raises(ConfigError, match="must take"):
        Method.of(lambda turn: turn, "mine:hook")
