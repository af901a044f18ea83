"""Flags of dreaming."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag


@dataclass(frozen=True)
class DreamArguments:
    """Dreams: a person's wish is learned from shipped everyday prompts, answered with the wish in the prompt."""

    dream_steps: int = flag(
        0,
        "optimizer steps after each batch of people who asked for something: the model answers everyday prompts with the "
        "wish in its prompt, and learns to answer like that without it; 0: no dreams",
        least=0,
        most=64,
    )
    dream_first_steps: int = flag(
        16, "with --dream-steps, the same after a batch that brings a wish of a new kind", least=1, most=64
    )
    dream_rows: int = flag(5, "dreams in each of these steps", least=1, most=256)
    dream_anchors: int = flag(
        8,
        "anchors in each of these steps: prompts that explicitly ask for something, prompts of other kinds, and simple "
        "questions that the model answers right, where the policy is held to its teacher",
        least=0,
        most=256,
    )
    dream_anchor_weight: float = flag(1.0, "weight of an anchor's loss; a dream's is 1", least=0, most=16)
    dream_prompts: int = flag(
        16,
        "answers that are kept for a new wish; two and a half times as many are sampled",
        least=1,
        most=512,
    )
    dream_tokens: int = flag(
        96, "longest sampled answer of a dream or an anchor", least=8, most=4096, unit="tokens"
    )

    @property
    def is_on(self) -> bool:
        return self.dream_steps > 0
