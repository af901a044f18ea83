"""Flags of dreaming."""

from __future__ import annotations

from dataclasses import dataclass

from claw_base.settings.declare import flag


@dataclass(frozen=True)
class DreamArguments:
    """Dreams: a person's wish is learned from shipped everyday prompts, answered with the wish in the prompt."""

    dream_steps: int = flag(
        0,
        "least steps on dreams (answers with the wish in the prompt) after a complaint; 0: no dreams",
        least=0,
        most=64,
    )
    dream_first_steps: int = flag(
        16,
        "with --dream-steps, steps after a batch until half of the held-out answers show the wish; then fewer, if "
        "requests for the opposite are still obeyed",
        least=1,
        most=64,
    )
    dream_rows: int = flag(5, "dreams in each of these steps", least=1, most=256)
    dream_anchors: int = flag(
        8,
        "anchors per dream step: wishes, other prompts and questions held to the teacher",
        least=0,
        most=256,
    )
    dream_anchor_weight: float = flag(
        1.0,
        "loss weight of an anchor of 14 tokens; longer ones weigh more (a dream: 1)",
        least=0,
        most=16,
    )
    dream_prompts: int = flag(
        16,
        "answers kept for a new wish, of 2.5 times as many sampled",
        least=1,
        most=512,
    )
    dream_tokens: int = flag(
        96, "longest sampled answer of a dream or an anchor", least=8, most=4096, unit="tokens"
    )

    @property
    def is_on(self) -> bool:
        return self.dream_steps > 0
