"""Explicit requests that tiny-claw understands, for the anchors that keep it obedient (`--anchor-wishes`).

`bash lab/run.sh tiny_models.tiny_claw.wishes MODEL_DIR > wishes.txt` writes them: sentences built from parts, and
freely written ones (`written.json`), of which those are kept that the model obeys in `LEAST` of the replies to
training problems. An anchor with a request that the model does not understand would preserve its old habit after any
further sentence; and few wordings are memorised: with 44 of them the model wrote a list far more often for wordings
of the file than for others.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from claw_lab import MODEL
from claw_lab.tiny_models.tiny_claw.generation import Helper, Messages
from tiny_claw.manners import OTHERWISE, Form, obeys, write_reply
from tiny_claw.problems import Problem, random_problem
from tiny_claw.wordings import written

LEAST = 0.85
ASKED = 24
"""Replies that measure a wording, in three places in turn."""
KEPT: dict[Form, int] = {"list": 160, "number": 50, "friendly": 40, "detailed": 39, "prose": 30}
"""Number of composed wordings of each kind; half are for the list, which the untrained model writes without a
request."""
TRIES = 250
"""Number of composed sentences of each kind, from which these are drawn."""
FILE = MODEL.with_name("wishes.txt")

_WANT = (
    "I want {}.", "I would like {}.", "I like {}.", "I prefer {}.", "The user wants {}.", "The student wants {}.",
    "Give me {}.", "It should be {}.", "{}, please.", "Can I have {}?",
)  # fmt: skip
_STANDING = (
    "Always use {}.", "Always answer with {}.", "All answers should be {}.", "Every answer should be {}.",
    "You write {}.", "You answer with {}.", "Your answers are {}.", "Answer all questions with {}.",
    "For each problem, use {}.", "The user likes {}.", "The teacher wants {}.", "People here prefer {}.",
    "Solutions should be {}.", "Show every solution as {}.", "The reply must be {}.", "Only {}, please.",
    "As {}, please.", "This time, {}.", "I need {} for my notes.", "My teacher likes {}.",
    "It is easier to read as {}.", "Let me see {}.", "Can you do it as {}?", "Write back with {}.",
)  # fmt: skip
"""Wordings of a request for all answers, or with a reason."""
_LISTS = (
    "a numbered list", "a list", "bullet points", "a structured list", "numbered steps", "a bulleted list",
    "list lines", "numbered lines", "an ordered list", "markdown with a list", "a list of steps", "a list with bold",
    "lines with numbers", "formatted steps", "bullets", "a bullet list", "a step list", "a list of the steps",
    "separate lines", "one step on each line", "steps below each other", "list form", "a list with numbers",
    "bold and list lines", "numbered steps below each other", "a short list",
)  # fmt: skip
_MORE = (
    "",
    "",
    " with bold",
    " with bold labels",
    " and bold text",
    " with bold headings",
    " for the solution",
)
_MAKE = (
    "use", "write", "answer with", "reply with", "make", "format it as", "put the steps in", "write the steps as",
    "show the solution as", "respond with", "explain it with", "put it in", "solve it with", "show the steps as",
    "break it into", "set it out as", "turn it into", "give the steps as",
)  # fmt: skip
_RESULTS = (
    "the number",
    "the result",
    "the final number",
    "the final answer",
    "the answer",
    "the final result",
)
_ONLY = (
    "only {}", "just {}", "nothing but {}", "{} and nothing else", "{} without steps", "{} alone",
    "{} without any explanation", "only {}, no steps", "just {}, no words",
)  # fmt: skip
_TONES = ("kind", "warm", "friendly", "cheerful", "encouraging", "patient", "nice", "happy")
_DETAILS = (
    "all the details", "every detail", "more details", "a detailed explanation", "a thorough explanation",
    "a long explanation", "a careful explanation",
)  # fmt: skip
_IN_SENTENCES = (
    "in plain sentences", "in normal sentences", "in prose", "in ordinary sentences", "in whole sentences",
    "without a list",
)  # fmt: skip
_PROSE = (
    "plain sentences", "natural prose", "ordinary sentences", "normal text", "plain text", "a paragraph",
    "one paragraph",
)  # fmt: skip


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _order(rng: random.Random, body: str) -> str:
    """Returns a request as an order, politely or not."""
    form = rng.choice(("Please {}.", "{}, please.", "Could you {}?", "{}.", "{}.", "{}."))
    return _capital(form.format(body))


def _want(rng: random.Random, noun: str) -> str:
    return _capital(rng.choice(_WANT).format(noun))


def _list(rng: random.Random) -> str:
    noun = rng.choice(_LISTS) + rng.choice(_MORE)
    form = rng.random()
    if form < 0.4:
        return _order(rng, f"{rng.choice(_MAKE)} {noun}")
    return _capital(rng.choice(_STANDING).format(noun)) if form < 0.8 else _want(rng, noun)


def _number(rng: random.Random) -> str:
    noun = rng.choice(_ONLY).format(rng.choice(_RESULTS))
    if rng.random() < 0.6:
        verb = rng.choice(("give me", "write", "tell me", "answer with", "reply with", "say"))
        return _order(rng, f"{verb} {noun}")
    return _want(rng, noun)


def _friendly(rng: random.Random) -> str:
    one, other = rng.sample(_TONES, 2)
    noun = rng.choice(("{} tone", "{} words", "{} and {} tone", "{} and {} words")).format(one, other)
    noun = noun if noun.endswith("words") else f"a {noun}".replace("a encouraging", "an encouraging")
    verb = rng.choice(
        ("use", "write with", "answer with", "explain it in", "say it in", "be", "sound", "stay", "")
    )
    if verb in ("be", "sound", "stay"):
        return _order(rng, f"{verb} {rng.choice((one, f'{one} and {other}'))}")
    return _order(rng, f"{verb} {noun}") if verb else _want(rng, noun)


def _detailed(rng: random.Random) -> str:
    ending = rng.choice(_IN_SENTENCES)
    if rng.random() < 0.5:
        verb = rng.choice(("explain it", "explain every step", "write", "answer", "explain everything"))
        how = rng.choice(("in detail", "thoroughly", "carefully", "with all the details"))
        return _order(rng, f"{verb} {how} {ending}")
    return _want(rng, f"{rng.choice(_DETAILS)} {ending}")


def _prose(rng: random.Random) -> str:
    verb = rng.choice(("use", "write", "answer with", "reply with"))
    ending = rng.choice(
        (" with the steps", ", no list and no bold", " without a list", ", no bold", " and keep the steps")
    )
    return _order(rng, f"{verb} {rng.choice(_PROSE)}{ending}")


_SAID: dict[Form, Callable[[random.Random], str]] = {
    "list": _list,
    "number": _number,
    "friendly": _friendly,
    "detailed": _detailed,
    "prose": _prose,
}


def sentences(kind: Form, tries: int = TRIES) -> list[str]:
    """Returns wordings of a kind, sorted; equal arguments give equal ones."""
    rng = random.Random(f"wishes for {kind}")
    return sorted({_SAID[kind](rng) for _ in range(tries)})


def _asked(kind: Form, wish: str, number: int) -> tuple[Problem, Messages]:
    """Returns a training problem with the request after it, in the system message, or in a complaint about a reply of
    another form."""
    rng = random.Random(f"{wish} {number}")
    problem = random_problem(rng, "train")
    question = {"role": "user", "content": problem.text}
    if number % 3 == 0:
        return problem, [{"role": "system", "content": wish}, question]
    if number % 3 == 1:
        return problem, [{"role": "user", "content": f"{problem.text} {wish}"}]
    reply = {"role": "assistant", "content": write_reply(rng, problem, OTHERWISE[kind])}
    return problem, [question, reply, {"role": "user", "content": wish}]


def obedience(helper: Helper, kind: Form, wishes: Sequence[str]) -> dict[str, float]:
    """Returns for each request the share of replies that obey it, at temperature 1."""
    asked = [(wish, *_asked(kind, wish, number)) for wish in wishes for number in range(ASKED)]
    replies = helper.answer([talk for _, _, talk in asked])
    hits = dict.fromkeys(wishes, 0)
    for (wish, problem, _), reply in zip(asked, replies, strict=True):
        hits[wish] += obeys(kind, problem, reply)
    return {wish: count / ASKED for wish, count in hits.items()}


def read() -> list[str]:
    """Returns the requests of the shipped file."""
    return FILE.read_text("utf-8").splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="folder of the untrained model")
    options = parser.parse_args()
    helper = Helper(options.model)
    torch.manual_seed(0)
    for kind, count in KEPT.items():
        shares = obedience(helper, kind, sentences(kind))
        learned = [wish for wish, share in shares.items() if share >= LEAST]
        chosen = random.Random(f"which wishes for {kind}").sample(learned, min(count, len(learned)))
        print("\n".join(sorted(chosen)))
    for kind in KEPT:
        shares = obedience(helper, kind, sorted({*written()[kind]["asked"]}.difference(sentences(kind))))
        print("\n".join(wish for wish, share in shares.items() if share >= LEAST))


if __name__ == "__main__":
    main()
