"""Measures properties of a model from its replies to fresh problems."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from claw_lab.offline.local_engine import Reply
from claw_lab.offline.local_loop import ChatModel
from openclaw.types import Message
from openclaw_test.people.tastes import Taste
from openclaw_test.people.wishes import Obedience, Split, cases, obedience
from slime.training.core.model import TrainedModel
from slime.training.core.packing import pack
from slime.types import Sample
from tiny_claw import detectors
from tiny_claw.problems import Problem, held_out_problems, random_problem

FRESH, GREEDY, WISHES = 200, 1000, 50
Remember = Callable[[list[Message]], list[Message]]
"""Changes a conversation before it is sent: not at all, or by adding a memory."""


@dataclass(frozen=True)
class Replies:
    """Prompts, replies and their readable texts, one for each problem."""

    problems: list[Problem]
    prompts: list[list[int]]
    replies: list[Reply]
    texts: list[str]

    def share(self, is_so: Callable[[Problem, str], bool]) -> float:
        """Returns the share of replies from 0 to 1."""
        pairs = zip(self.problems, self.texts, strict=True)
        return sum(is_so(problem, text) for problem, text in pairs) / len(self.texts)


def ask(
    chat: ChatModel,
    problems: list[Problem],
    seed: int,
    temperature: float | None = None,
    remember: Remember = lambda messages: messages,
) -> Replies:
    """Returns a first reply to each problem, in one batch; nothing is stored."""
    asked = [remember([{"role": "user", "content": problem.text}]) for problem in problems]
    prompts = [chat.format.render(messages, None, True) for messages in asked]
    replies = chat.answer(prompts, range(seed, seed + len(prompts)), temperature)
    texts = [
        str(chat.read(prompt, reply)["content"] or "") for prompt, reply in zip(prompts, replies, strict=True)
    ]
    return Replies(problems, prompts, replies, texts)


def fresh_problems(seed: int, n: int = FRESH) -> list[Problem]:
    """Returns held-out problems that occur in no conversation."""
    rng = random.Random(f"look {seed}")
    return [random_problem(rng, "held-out") for _ in range(n)]


def preferences(replies: Replies, tastes: Sequence[Taste]) -> dict[str, float]:
    """Returns the share of replies that would please each person."""
    return {taste.name: replies.share(taste.is_content) for taste in tastes}


def greedy_accuracy(chat: ChatModel, remember: Remember = lambda messages: messages) -> float:
    """Returns the share of right results at temperature 0 on 1,000 fixed held-out problems."""
    replies = ask(chat, held_out_problems(GREEDY), 0, 0.0, remember)
    return replies.share(detectors.is_right)


def habits(replies: Replies) -> dict[str, float]:
    """Returns the shares of replies that keep the steps, are right, are bare answers, are lists, are warm."""
    return {
        "accuracy_sampled": replies.share(detectors.is_right),
        "steps_kept": replies.share(detectors.keeps_steps),
        "bare": replies.share(lambda _, text: detectors.manner(text) in ("bare", "other")),
        "listed": replies.share(lambda _, text: detectors.manner(text) == "list"),
        "warm": replies.share(lambda _, text: detectors.tone(text) == "warm"),
    }


@torch.no_grad()
def drift(
    policy: TrainedModel, start: TrainedModel, replies: Replies, temperature: float
) -> dict[str, float]:
    """Returns the entropy of the policy in nats a token, and its divergence from the first weights in nats a reply,
    both estimated on the policy's own replies."""
    device = torch.device("cpu")
    entropy = divergence = tokens = 0.0
    pairs = list(zip(replies.prompts, replies.replies, strict=True))
    for at in range(0, len(pairs), 50):
        samples = [
            Sample(tokens=prompt + reply.ids, response_length=len(reply.ids), temperature=temperature)
            for prompt, reply in pairs[at : at + 50]
        ]
        packed = pack(samples, device)
        now, before = policy.distribution(packed), start.distribution(packed)
        entropy += float(now.entropy().sum())
        divergence += float((now.log_probs(packed.targets) - before.log_probs(packed.targets)).sum())
        tokens += len(packed.targets)
    return {"entropy": entropy / tokens, "kl_to_start": divergence / len(pairs)}


def explicit_wishes(
    chat: ChatModel, seed: int, split: Split = "report", remember: Remember = lambda messages: messages
) -> Obedience:
    """Returns whether the model obeys explicit requests, and how diverse its replies are."""
    asked = cases(split, WISHES, seed)
    prompts = [chat.format.render(remember(case.messages), None, True) for case in asked]
    start = random.Random(f"wishes {split} {seed}").getrandbits(40)
    replies = chat.answer(prompts, range(start, start + len(prompts)))
    texts = [str(chat.read(*pair)["content"] or "") for pair in zip(prompts, replies, strict=True)]
    return obedience(asked, texts)
