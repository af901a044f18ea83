"""A random Qwen3-VL, transformers' results for it, and samples with images."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from slime.rollout.tokenizer import load_tokenizer
from slime.types import Sample
from slime.vision.pictures import pictures_of
from slime.vision.reading import ImageReader
from tests.fakes.tiny_vision_model import END, VOCABULARY, load_reference, message, picture, save_vision_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel


MakeSample = Callable[..., Sample]


@pytest.fixture(scope="session")
def vision_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vision_model(tmp_path_factory.mktemp("vision-model"), seed=1)


@pytest.fixture
def make_args(vision_folder: Path, training_args: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **changes: training_args(**({"model_folder": str(vision_folder), "lr": 1e-3} | changes))


@pytest.fixture(scope="session")
def reference(vision_folder: Path) -> PreTrainedModel:
    return load_reference(vision_folder)


@pytest.fixture
def reader(vision_folder: Path, tmp_path: Path) -> ImageReader:
    return ImageReader(str(vision_folder), str(tmp_path))


@pytest.fixture
def make_sample(vision_folder: Path, reader: ImageReader) -> MakeSample:
    """f(*pictures, ...): a prompt of the pictures between words, and a response of random tokens; `seen` is a picture
    that the environment shows in the middle of it."""
    tokenizer = load_tokenizer(str(vision_folder))

    def make(*pictures: str, seed: int = 0, seen: str | None = None, **changes: Any) -> Sample:
        drawn = random.Random(seed)
        words = [word for one in pictures for word in (one, "and")]
        messages = [message("what is this?", *words)]
        text = tokenizer.render(messages, answer_next=True)
        prompt, images = reader.placed(tokenizer.encode(text), pictures_of(messages))
        answer, mask = [drawn.randrange(6, VOCABULARY - 60) for _ in range(9)], [1] * 9
        if seen is not None:
            shown = [message(seen, "next?")]
            ids, places = reader.placed(tokenizer.encode(tokenizer.render(shown, answer_next=True)), [seen])
            images += [place.moved(len(prompt) + len(answer)) for place in places]
            answer, mask = answer + ids + answer[:4] + [END], mask + [0] * len(ids) + [1] * 5
        values = {"index": seed, "group_index": seed, "temperature": 0.8, "reward": float(seed % 2)}
        return Sample(
            **(values | changes),
            tokens=prompt + answer,
            response_length=len(answer),
            loss_mask=mask,
            images=images,
        )

    return make


@pytest.fixture
def samples(make_sample: MakeSample) -> list[Sample]:
    """Returns two samples with the same prompt of two pictures, one with the pictures exchanged, one with a later
    picture, one of text."""
    small, wide, tall = picture(40, 30, 1), picture(60, 33, 2), picture(34, 60, 3)
    return [
        make_sample(small, wide, seed=0),
        make_sample(small, wide, seed=1),
        make_sample(wide, small, seed=2),
        make_sample(tall, seed=3, seen=wide),
        make_sample(seed=4),
    ]
