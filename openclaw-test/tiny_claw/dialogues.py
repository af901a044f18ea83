"""Training conversations of tiny-claw: OpenAI messages, and which of them have loss.

A conversation is a list of messages and the set of assistant messages with loss; a wrong reply that gets a complaint
has none. Separate documents of bare equations train arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from tiny_claw import corpora, small_talk, wordings
from tiny_claw.detectors import Manner
from tiny_claw.manners import MANNER_ASKED, OTHERWISE, Form, Style, other_style, unprompted_style, write_reply
from tiny_claw.problems import Problem, fact_is_held_out, random_problem, random_step

HINT_BLOCK = "\n\n[user's hint / instruction]\n"
MANNERS: tuple[Manner, ...] = ("list", "prose", "bare")
TRAITS: tuple[wordings.Trait, ...] = ("warm", "cold", "short", "detailed")
WRITTEN_WEIGHTS: dict[wordings.Wish, int] = {
    "list": 30, "prose": 20, "number": 11, "friendly": 17, "detailed": 11, "nothing": 11,
}  # fmt: skip
ASKED_WEIGHTS = {"list": 27, "prose": 48, "bare": 25}  # how often a hint or complaint asks for each manner
THINKING_OFF = 0.1  # share of conversations in the format of enable_thinking=False
SYSTEM_SHARE = 0.2
TONE_BESIDE_LENGTH = 0.5
STAMPED, STAMPED_IN_LONG = 0.05, 0.4  # shares of messages with additions of client programs


@dataclass(frozen=True)
class Conversation:
    """`messages` in OpenAI's format; `learned`: indices of the messages with loss."""

    messages: tuple[dict[str, str], ...]
    learned: frozenset[int]
    thinking: bool = True


@dataclass(frozen=True)
class Equations:
    """A document of (question, result) lines, e.g. ("12 + 5 =", " 17"); only the results carry loss."""

    lines: tuple[tuple[str, str], ...]


class Script:
    """Builds the messages of one conversation."""

    def __init__(self, rng: random.Random, thinking: bool) -> None:
        self.rng = rng
        self.thinking = thinking
        self.messages: list[dict[str, str]] = []
        self.learned: set[int] = set()

    def system(self, content: str) -> None:
        self.messages.append({"role": "system", "content": content})

    def user(self, content: str) -> None:
        self.messages.append({"role": "user", "content": content})

    def assistant(self, content: str, learned: bool = True) -> None:
        if learned:
            self.learned.add(len(self.messages))
        self.messages.append({"role": "assistant", "content": content})

    def reply(self, problem: Problem, style: Style) -> None:
        self.assistant(write_reply(self.rng, problem, style, self.thinking))

    def open_with(self, content: str) -> None:
        """Inserts a system message, or prepends text to it."""
        if self.messages[0]["role"] == "system":
            self.messages[0]["content"] = f"{content}\n\n{self.messages[0]['content']}"
            return
        self.messages.insert(0, {"role": "system", "content": content})
        self.learned = {index + 1 for index in self.learned}

    def stamp(self) -> None:
        """Adds what client programs add: the date before each user message, a note after the last."""
        asked = [message for message in self.messages if message["role"] == "user"]
        if self.rng.random() < 0.7:
            for message in asked:
                message["content"] = corpora.date_stamp(self.rng) + message["content"]
        if self.rng.random() < 0.5:
            before, block, hint = asked[-1]["content"].partition(HINT_BLOCK)
            asked[-1]["content"] = f"{before}\n\n{corpora.machine_note(self.rng)}{block}{hint}"

    def close(self) -> Conversation:
        return Conversation(tuple(self.messages), frozenset(self.learned), self.thinking)


def conversation(
    rng: random.Random, long: bool = False, lengths: float = 0.0, written: float = 0.0
) -> Conversation:
    """Returns one conversation of the mix; `long`: with a long agent system message; `lengths`: probability of
    requests about the length and warmth of prose; `written`: probability of freely written requests."""
    script = Script(rng, thinking=rng.random() >= THINKING_OFF)
    drawn = rng.random()
    if drawn < lengths:
        _instructed(script, length_hint)
    elif drawn < lengths + written:
        _asked_freely(script)
    else:
        rng.choices([kind for kind, _ in _MIX], [weight for _, weight in _MIX])[0](script)
    if long:
        script.open_with(corpora.long_system_message(rng))
    elif script.messages[0]["role"] != "system" and rng.random() < SYSTEM_SHARE:
        script.open_with(rng.choice(small_talk.SYSTEM_PROMPTS))
    if rng.random() < (STAMPED_IN_LONG if long else STAMPED):
        script.stamp()
    return script.close()


def equations(rng: random.Random, lines: int = 12) -> Equations:
    """Returns a document of bare equations without held-out facts."""
    pairs: list[tuple[str, str]] = []
    while len(pairs) < lines:
        step = random_step(rng, rng.choices("+-x", (45, 45, 10))[0])
        if step is not None and not fact_is_held_out(step):
            question, _, result = str(step).rpartition(" ")
            pairs.append((question, f" {result}"))
    return Equations(tuple(pairs))


def asked_manner(rng: random.Random, without: Manner | None = None) -> Manner:
    """Returns a random manner to ask for, other than the current one."""
    choices = [manner for manner in MANNERS if manner != without]
    return rng.choices(choices, [ASKED_WEIGHTS[manner] for manner in choices])[0]


def hint_for(rng: random.Random, style: Style) -> tuple[str, Style]:
    """Returns an instruction and the style that follows it: `style` changed in what the instruction names."""
    drawn = rng.random()
    manner_asked = drawn < 0.85
    trait_asked = drawn >= 0.7
    parts: list[str] = []
    if manner_asked:
        manner = asked_manner(rng)
        parts.append(wordings.manner_hint(rng, manner))
        style = other_style(rng, style, manner)
    if trait_asked:
        trait = rng.choice(TRAITS)
        parts.append(wordings.trait_hint(rng, trait))
        style = with_trait(style, trait)
    rng.shuffle(parts)
    return " ".join(parts), style


def length_hint(rng: random.Random, style: Style) -> tuple[str, Style]:
    """Returns an instruction to write prose of a length, in half of the cases also of a tone, and the style that
    follows it."""
    traits: list[wordings.Trait] = [rng.choice(("short", "detailed"))]
    if rng.random() < TONE_BESIDE_LENGTH:
        traits.append(rng.choice(("warm", "cold")))
    parts = [wordings.manner_hint(rng, "prose"), *(wordings.trait_hint(rng, trait) for trait in traits)]
    rng.shuffle(parts)
    style = other_style(rng, style, "prose")
    for trait in traits:
        style = with_trait(style, trait)
    return rng.choice((" ", "\n")).join(parts), style


def with_trait(style: Style, trait: wordings.Trait) -> Style:
    """Returns `style` with another tone or length."""
    if trait == "warm" or trait == "cold":
        return replace(style, tone=trait)
    return replace(style, short=trait == "short")


def ask(rng: random.Random, problem: Problem) -> str:
    """Returns the problem as a person words it."""
    return (rng.choice(small_talk.PROBLEM_INTROS) if rng.random() < 0.2 else "") + problem.text


def _unprompted(script: Script) -> None:
    problem = random_problem(script.rng)
    script.user(ask(script.rng, problem))
    script.reply(problem, unprompted_style(script.rng))


def _instructed(
    script: Script, asked: Callable[[random.Random, Style], tuple[str, Style]] = hint_for
) -> None:
    """Adds an instruction: in a block after the question, next to the question, or in the system message."""
    rng, problem = script.rng, random_problem(script.rng)
    hint, style = asked(rng, unprompted_style(rng))
    _with_instruction(script, ask(rng, problem), hint, in_block=0.5)
    script.reply(problem, style)


def _with_instruction(script: Script, question: str, hint: str, in_block: float) -> None:
    """Adds the question and the instruction; `in_block`: probability that the instruction is in its block."""
    rng = script.rng
    place = (rng.random() - in_block) / (1 - in_block)
    if place < 0:
        script.user(question + HINT_BLOCK + hint)
    elif place < 0.26:
        script.user(f"{question} {hint}")
    elif place < 0.52:
        script.user(f"{hint} {question}")
    else:
        system = rng.choice(("", rng.choice(small_talk.SYSTEM_PROMPTS) + "\n"))
        script.system(f"{system}{hint}")
        script.user(question)


def _asked_freely(script: Script) -> None:
    """Adds a freely written request, which asks for a form or for nothing, or such a complaint."""
    rng, problem = script.rng, random_problem(script.rng)
    kind = rng.choices(list(WRITTEN_WEIGHTS), list(WRITTEN_WEIGHTS.values()))[0]
    sentences, style = wordings.written()[kind], unprompted_style(rng)
    if kind != "nothing" and rng.random() < 0.3:
        style = OTHERWISE[kind]
        script.user(ask(rng, problem))
        script.assistant(write_reply(rng, problem, style, script.thinking), learned=False)
        script.user(rng.choice(sentences["complaint"]))
    else:
        _with_instruction(script, ask(rng, problem), rng.choice(sentences["asked"]), in_block=0.2)
    script.reply(problem, style if kind == "nothing" else _as_wished(rng, style, kind))


def _as_wished(rng: random.Random, style: Style, kind: Form) -> Style:
    """Returns the style that a request asks for: `style` changed in what it names."""
    if kind == "friendly":
        return Style("prose" if style.manner == "bare" else style.manner, "warm", style.short)
    if kind == "detailed":
        return replace(style, manner="prose", short=False)
    return other_style(rng, style, MANNER_ASKED[kind])


def _complaint(script: Script) -> None:
    """Adds a reply, a complaint, the rewrite; sometimes thanks, and the next problem in the requested manner."""
    rng, problem = script.rng, random_problem(script.rng)
    script.user(ask(rng, problem))
    before = unprompted_style(rng)
    manner = asked_manner(rng, before.manner)
    if before.manner == "bare" and manner == "prose" and rng.random() < 0.8:
        words = rng.choice(wordings.LOST_STEPS_COMPLAINTS["train"])
    elif rng.random() < 0.75:
        words = wordings.manner_complaint(rng, manner)
    else:
        words = wordings.manner_hint(rng, manner)
    if rng.random() < 0.2:
        words += HINT_BLOCK + wordings.manner_hint(rng, manner)
    after = other_style(rng, before, manner)
    script.assistant(write_reply(rng, problem, before, script.thinking), learned=False)
    script.user(words)
    script.reply(problem, after)
    if rng.random() < 0.2:
        _thanks(script)
        _next_problem(script, replace(after, short=before.short))


def _lost_steps(script: Script) -> None:
    """Adds a bare number without steps, and a user who wants to see them."""
    rng, problem = script.rng, random_problem(script.rng)
    script.user(ask(rng, problem))
    script.assistant(
        rng.choice((str(problem.answer), f"{problem.answer} {problem.item}".strip())), learned=False
    )
    script.user(rng.choice(wordings.LOST_STEPS_COMPLAINTS["train"]))
    script.reply(problem, other_style(rng, unprompted_style(rng), "prose"))


def _wrong_result(script: Script) -> None:
    """Adds a reply with a mistake, a complaint, and the right reply in the same manner."""
    rng, problem = script.rng, random_problem(script.rng)
    style = unprompted_style(rng)
    if rng.random() < 0.5:
        style = replace(style, manner="prose")
    right = write_reply(rng, problem, style, thinking=False)
    wrong = right.replace(str(problem.answer), str(problem.answer + rng.choice((-10, -2, -1, 1, 2, 10))))
    script.user(ask(rng, problem))
    script.assistant(wrong, learned=False)
    script.user(rng.choice(wordings.WRONG_RESULT_COMPLAINTS["train"]))
    script.reply(problem, style)


def _session(script: Script) -> None:
    """Adds a good reply, thanks, and often one more problem."""
    rng, problem = script.rng, random_problem(script.rng)
    style = unprompted_style(rng)
    script.user(ask(rng, problem))
    script.assistant(write_reply(rng, problem, style, script.thinking), learned=False)
    _thanks(script)
    if rng.random() < 0.5:
        _next_problem(script, style)


def _thanks(script: Script) -> None:
    script.user(script.rng.choice(wordings.THANKS["train"]))
    script.assistant(script.rng.choice(small_talk.WELCOMES))


def _next_problem(script: Script, style: Style) -> None:
    """Adds one more problem in the same manner."""
    problem = random_problem(script.rng)
    script.user(ask(script.rng, problem))
    script.reply(problem, style)


def _small_talk(script: Script) -> None:
    for _ in range(script.rng.choice((1, 1, 2))):
        asked, answers = script.rng.choice(small_talk.SMALL_TALK)
        script.user(script.rng.choice(asked))
        script.assistant(script.rng.choice(answers))
    if script.rng.random() < 0.3:
        _unprompted(script)


_MIX: tuple[tuple[Callable[[Script], None], int], ...] = (
    (_unprompted, 26),
    (_instructed, 38),
    (_complaint, 21),
    (_lost_steps, 7),
    (_wrong_result, 3),
    (_session, 5),
    (_small_talk, 5),
)
