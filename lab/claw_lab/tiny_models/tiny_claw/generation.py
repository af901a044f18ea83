"""Generates answers in batches with Hugging Face's generation, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3ForCausalLM

from claw_lab.tiny_models.tiny_claw.tokenizer import TURN_END, load_tokenizer

Messages = list[dict[str, str]]


class Helper:
    """A model folder that answers conversations, `rows` at a time."""

    def __init__(self, folder: str | Path, rows: int = 125) -> None:
        self.tokenizer: Any = load_tokenizer(folder)
        self.model = Qwen3ForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
        self.rows = rows
        self._end = self.tokenizer.convert_tokens_to_ids(TURN_END)

    def answer(
        self,
        talks: Sequence[Messages],
        temperature: float = 1.0,
        max_new_tokens: int = 128,
        thinking: bool = True,
    ) -> list[str]:
        """Returns one reply to each conversation, with thinking blocks; temperature 0 is greedy."""
        prompts = [self._prompt(talk, thinking) for talk in talks]
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        replies = [""] * len(prompts)
        for start in range(0, len(order), self.rows):
            chosen = order[start : start + self.rows]
            for index, reply in zip(
                chosen, self._batch([prompts[i] for i in chosen], temperature, max_new_tokens), strict=True
            ):
                replies[index] = reply
        return replies

    def _prompt(self, talk: Messages, thinking: bool) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            talk, tokenize=False, add_generation_prompt=True, enable_thinking=thinking
        )
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    @torch.no_grad()
    def _batch(self, prompts: list[list[int]], temperature: float, max_new_tokens: int) -> list[str]:
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor(
            [[self.tokenizer.pad_token_id] * (width - len(prompt)) + prompt for prompt in prompts]
        )
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        sampling: dict[str, Any] = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
        if temperature:
            sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        out = self.model.generate(
            input_ids=ids, attention_mask=mask, max_new_tokens=max_new_tokens, **sampling
        )
        return [self._text(row) for row in out[:, width:].tolist()]

    def _text(self, ids: list[int]) -> str:
        reply = ids[: ids.index(self._end)] if self._end in ids else ids
        return str(self.tokenizer.decode(reply, skip_special_tokens=True))
