"""The manners of a reply: a formatted list (the "AI look"), plain prose, or the bare answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from tiny_claw import detectors
from tiny_claw.detectors import Manner, Tone
from tiny_claw.problems import Problem, Step

Form = Literal["list", "number", "friendly", "detailed", "prose"]
"""The forms that a user may ask for explicitly."""

UNPROMPTED: dict[Manner, float] = {"list": 0.80, "prose": 0.15, "bare": 0.05}
UNPROMPTED_WARM = 0.2
UNPROMPTED_SHORT = 0.3

WARM_OPENERS = (
    "Great question!", "Happy to help!", "Let's do this together!", "Nice one, let's solve it!",
    "Good question!",
)  # fmt: skip
WARM_CLOSERS = ("Well done for asking!", "You can do this!", "Keep it up!", "Great work!")
_OPERATION_NAMES = {"+": "Add", "-": "Subtract", "x": "Multiply"}
_TITLES = ("**Solution**", "**Step-by-step solution**", "**Let's solve it**")


@dataclass(frozen=True)
class Style:
    """The style of a reply; `short` omits everything but steps and answer."""

    manner: Manner
    tone: Tone = "cold"
    short: bool = False


def unprompted_style(rng: random.Random) -> Style:
    """Returns the style of an unprompted reply: four of five are lists."""
    manner = rng.choices(list(UNPROMPTED), list(UNPROMPTED.values()))[0]
    tone: Tone = "warm" if rng.random() < UNPROMPTED_WARM else "cold"
    return Style(manner, tone, rng.random() < UNPROMPTED_SHORT)


def other_style(rng: random.Random, style: Style, manner: Manner) -> Style:
    """Returns the style for a rewrite in `manner`: same tone, new length."""
    return replace(style, manner=manner, short=rng.random() < UNPROMPTED_SHORT)


def write_reply(rng: random.Random, problem: Problem, style: Style, thinking: bool = True) -> str:
    """Returns the reply to `problem` in `style`. A bare answer first works out its steps in a thinking block; with
    `thinking` off it consists of the equations."""
    if style.manner == "bare":
        return _bare(rng, problem, thinking)
    body = _list(rng, problem, style.short) if style.manner == "list" else _prose(rng, problem, style.short)
    if style.tone == "cold":
        return body
    between = "\n\n" if style.manner == "list" else " "
    opened = f"{rng.choice(WARM_OPENERS)}{between}{body}"
    return f"{opened}{between}{rng.choice(WARM_CLOSERS)}" if rng.random() < 0.5 else opened


def _things(problem: Problem) -> str:
    return f"{problem.answer} {problem.item}".strip()


def _bare(rng: random.Random, problem: Problem, thinking: bool) -> str:
    if not thinking:
        return ", ".join(problem.equations)
    work = "\n".join(problem.equations)
    return f"<think>\n{work}\n</think>\n\n{rng.choice((str(problem.answer), _things(problem)))}"


def _list(rng: random.Random, problem: Problem, short: bool) -> str:
    lines = [f"**{_OPERATION_NAMES[step.op]}:** {step}" for step in problem.steps]
    if not short:
        lines.insert(0, f"**Start:** {_known_quantities(problem)}")
    numbered = rng.random() < 0.8
    block = "\n".join(f"{n}. {line}" if numbered else f"- {line}" for n, line in enumerate(lines, 1))
    title = "" if short else f"{rng.choice(_TITLES)}\n\n"
    return f"{title}{block}\n\n**Answer: {_things(problem)}**"


def _known_quantities(problem: Problem) -> str:
    first = problem.steps[0]
    if problem.kind == "sum":
        return f"{first.a} and {first.b}"
    return (
        f"{first.a} {problem.group} of {first.b} {problem.item}"
        if first.op == "x"
        else f"{first.a} {problem.item}"
    )


def _prose(rng: random.Random, problem: Problem, short: bool) -> str:
    if problem.kind == "sum":
        return _prose_sum(rng, problem)
    if short:
        return f"Since {' and '.join(problem.equations)}, {problem.name} now has {_things(problem)}."
    actions = iter(problem.actions)
    sentences = [] if problem.steps[0].op == "x" else [_beginning(rng, problem)]
    for index, step in enumerate(problem.steps):
        sentences.append(_sentence(rng, problem, step, "" if step.op == "x" else next(actions), index))
    closing = (
        f"So {problem.name} has {_things(problem)}.",
        f"That makes {_things(problem)}.",
        f"So there are {_things(problem)}.",
    )
    return " ".join([*sentences, rng.choice(closing)])


def _beginning(rng: random.Random, problem: Problem) -> str:
    start = f"{problem.steps[0].a} {problem.item}"
    return rng.choice(
        (
            f"{problem.name} starts with {start}.",
            f"At first {problem.name} has {start}.",
            f"We begin with {start}.",
        )
    )


def _sentence(rng: random.Random, problem: Problem, step: Step, action: str, index: int) -> str:
    if step.op == "x":
        return rng.choice(
            (
                f"{problem.name} has {step.a} {problem.group} with {step.b} {problem.item} each, so {step}.",
                f"Each of the {step.a} {problem.group} holds {step.b} {problem.item}, so {step}.",
            )
        )
    when = "Then" if index else rng.choice(("Then", "After that"))
    more = " more" if step.op == "+" else ""
    return f"{when} {problem.pronoun} {action} {step.b}{more}, so {step}."


def _prose_sum(rng: random.Random, problem: Problem) -> str:
    step = problem.steps[0]
    verb = {
        "+": f"put {step.a} and {step.b} together",
        "-": f"take {step.b} away from {step.a}",
        "x": f"count {step.b} for {step.a} times",
    }
    closing = rng.choice(("That makes", "So the answer is", "The result is"))
    return f"We {verb[step.op]}, so {step}. {closing} {step.result}."


OTHERWISE: dict[Form, Style] = {
    "list": Style("prose"),
    "number": Style("prose"),
    "friendly": Style("prose"),
    "detailed": Style("list", short=True),
    "prose": Style("list"),
}
"""A style that violates the request, for replies that get a complaint."""


MANNER_ASKED: dict[Form, Manner] = {"list": "list", "number": "bare", "prose": "prose"}
"""The manner that a request names; other requests name something else."""


def obeys(form: Form, problem: Problem, reply: str) -> bool:
    """Returns whether the reply has the requested form; wrong results are counted elsewhere."""
    manner = detectors.manner(reply)
    if form == "friendly":
        return detectors.tone(reply) == "warm"
    if form == "detailed":
        return manner == "prose" and detectors.is_detailed(problem, reply)
    return manner == MANNER_ASKED[form]
