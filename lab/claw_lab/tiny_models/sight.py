"""A small Qwen3-VL, and the pictures of its demonstrations, processed as in a rollout but kept in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from claw_lab.tiny_models.dialogue import Document
from claw_lab.tiny_models.vision import MARKS, random_model, save_processor
from slime.agents.protocol import Message
from slime.rollout.tokenizer import ChatTokenizer
from slime.vision.pictures import pictures_of
from slime.vision.place import ImagePlace
from slime.vision.positions import rope_positions
from slime.vision.reading import ImageReader, processed


@dataclass(frozen=True)
class Vision:
    """`hidden`, `depth`: width and layers; `pixels`: maximum of a picture after scaling."""

    hidden: int = 64
    depth: int = 2
    pixels: int = 160 * 120

    def model(self, tokenizer: ChatTokenizer, end: int, sizes: Mapping[str, float]) -> PreTrainedModel:
        """Returns an untrained Qwen3VLForConditionalGeneration; `end`: the token that ends a turn; `sizes`: of its
        decoder."""
        ids = {name: tokenizer.fast.convert_tokens_to_ids(mark) for name, mark in MARKS.items()}
        vision = {
            "hidden_size": self.hidden,
            "intermediate_size": 3 * self.hidden,
            "depth": self.depth,
            "deepstack_visual_indexes": [0],
        }
        return random_model(len(tokenizer.fast), ids, torch.initial_seed(), end, vision, **sizes)

    def sight(self, model: PreTrainedModel, folder: Path) -> Sight:
        """Saves the configuration of the processor in the model's folder; returns a reader of pictures with it."""
        model.config.save_pretrained(folder)
        save_processor(folder, most=self.pixels)
        return Sight(folder)


class Sight(ImageReader):
    """Processes pictures for the model in a folder; the values of a picture are kept until a batch uses them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), run_dir=str(folder))
        self.numbers: dict[str, Tensor] = {}
        self.read = 0

    def of_messages(self, ids: list[int], messages: Sequence[Message]) -> tuple[list[int], list[ImagePlace]]:
        return self.placed(ids, pictures_of(messages))

    def image(self, url: str) -> tuple[tuple[int, int, int], str]:
        made = processed(self.processor, url)
        self.read += 1
        self.numbers[name := str(self.read)] = made.pixel_values
        return made.grid, name

    def inputs(self, documents: Sequence[Document], length: int) -> dict[str, Tensor]:
        """Returns a model's inputs in addition to the ids [B, length] of documents."""
        places = [place for document in documents for place in document.images]
        positions = torch.stack([rope_positions(length, document.images) for document in documents], dim=1)
        if not places:
            return {"position_ids": positions}
        return {
            "position_ids": positions,
            "pixel_values": torch.cat([self.numbers.pop(place.file) for place in places]),
            "image_grid_thw": torch.tensor([place.grid for place in places]),
        }
