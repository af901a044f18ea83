import random
import re

from tiny_claw import detectors, dialogues, wordings
from tiny_claw.manners import unprompted_style, write_reply
from tiny_claw.problems import Step, fact_is_held_out, held_out_problems, random_problem, story_is_held_out

STORY = re.compile(r"\b([A-Z][a-z]+) (?:has|had|owns|starts with) \d+ (\w+)")


def test_steps_lead_to_the_answer() -> None:
    rng = random.Random(0)
    for _ in range(500):
        problem = random_problem(rng)
        assert all(step.result > 1 for step in problem.steps)
        assert all(str(number) in problem.text for step in problem.steps[:1] for number in (step.a, step.b))
        if len(problem.steps) == 2:
            assert problem.steps[1].a == problem.steps[0].result


def test_held_out_problems_are_reproducible_by_seed() -> None:
    assert held_out_problems(20) == held_out_problems(20)
    assert held_out_problems(20) != held_out_problems(20, seed=1)


def test_held_out_problems_have_a_story_or_a_fact_that_training_has_not() -> None:
    for problem in held_out_problems(300):
        held_fact = any(fact_is_held_out(step) for step in problem.steps)
        assert held_fact or story_is_held_out(problem.name, problem.item)
    assert all(
        any(fact_is_held_out(step) for step in p.steps)
        for p in held_out_problems(50, only_held_out_facts=True)
    )


def test_a_held_out_fact_is_held_out_in_both_orders() -> None:
    assert all(
        fact_is_held_out(Step(a, "+", b)) == fact_is_held_out(Step(b, "+", a))
        for a in range(2, 48)
        for b in range(2, 48)
    )


def test_training_text_never_has_a_held_out_fact() -> None:
    rng = random.Random(1)
    texts = ["".join(q + r + "\n" for q, r in dialogues.equations(rng).lines) for _ in range(200)]
    for _ in range(2000):
        talk = dialogues.conversation(rng)
        texts += [message["content"] for index, message in enumerate(talk.messages) if index in talk.learned]
    found = [
        equation
        for text in texts
        for equation in detectors.equations(re.sub(r"</?think>", "", text))
        if equation.operations == 1
    ]
    assert len(found) > 3000
    for equation in found:
        a, sign, b = equation.expression
        assert not fact_is_held_out(Step(int(a), str(sign), int(b)))


def test_training_text_never_has_a_held_out_problem() -> None:
    rng = random.Random(2)
    held = {problem.text for problem in held_out_problems(1000)}
    stories = 0
    for _ in range(2000):
        for message in dialogues.conversation(rng).messages:
            assert not any(
                text in held
                for text in (message["content"], message["content"].split(dialogues.HINT_BLOCK)[0])
            )
            for name, thing in STORY.findall(message["content"]) if message["role"] == "user" else ():
                if thing in ("bags", "boxes", "rows", "packs", "trays"):
                    continue
                stories += 1
                assert not story_is_held_out(name, thing)
    assert stories > 1000


def test_wordings_of_the_test_set_are_never_trained() -> None:
    tables = [
        *wordings.MANNER_HINTS.values(), *wordings.TRAIT_HINTS.values(), *wordings.MANNER_COMPLAINTS.values(),
        wordings.LOST_STEPS_COMPLAINTS, wordings.WRONG_RESULT_COMPLAINTS, wordings.THANKS,
    ]  # fmt: skip
    trained = {text.lower() for table in tables for text in table["train"]}
    for table in tables:
        assert len(table["train"]) >= 5
        assert len(table["test"]) >= 2
        assert not trained & {text.lower() for text in table["test"]}


def test_unprompted_replies_show_the_ai_look_four_times_in_five() -> None:
    from tiny_claw.manners import unprompted_style

    rng = random.Random(4)
    drawn = [unprompted_style(rng).manner for _ in range(4000)]
    assert 0.77 < drawn.count("list") / 4000 < 0.83
    assert 0.12 < drawn.count("prose") / 4000 < 0.18


def test_instructions_about_length_are_followed_in_the_training_text() -> None:
    rng = random.Random(3)
    seen = set()
    for _ in range(300):
        hint, style = dialogues.length_hint(rng, unprompted_style(rng))
        problem = random_problem(rng)
        if problem.kind == "sum":
            continue
        short = any(words in hint.lower() for words in ("short", "brief", "not too long"))
        assert detectors.is_detailed(problem, write_reply(rng, problem, style)) is not short
        seen.add(short)
    assert seen == {True, False}
