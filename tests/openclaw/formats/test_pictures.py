"""Pictures in a prompt have exactly the tokens that the model's own processor gives them, in their places."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from openclaw.common.messages import PicturePart
from openclaw.errors import ClientError
from openclaw.formats.pictures import PictureFormat
from openclaw.formats.rendering import ChatFormat, ModelFolder
from openclaw.formats.template_probe import probe
from openclaw.formats.tokenizer import Tokenizer
from openclaw.gateway.chat_request import chat_request
from openclaw.types import Message
from slime.vision.reading import ImageReader, image_of_url
from tests.fakes.tiny_vision_model import message, picture, save_served_model

SIZES = ((40, 30), (60, 33), (34, 60), (1, 1), (7, 900), (16, 16), (500, 500), (65, 63), (24, 40), (8, 200))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_served_model(tmp_path_factory.mktemp("served") / "small-qwen3-vl", seed=1)


@pytest.fixture(scope="module")
def chat_format(folder: Path) -> ChatFormat:
    tokenizer = Tokenizer(folder)
    made = ChatFormat(ModelFolder.read(folder), tokenizer)
    assert tokenizer.read_text_as_plain(lambda: probe(made))
    return made


def received(*messages: Message) -> list[Message]:
    return chat_request({"messages": list(messages)}, sees=True).messages


def by_renderers(chat_format: ChatFormat, folder: Path, messages: list[Message]) -> list[int]:
    """Returns the ids of the package `renderers`, which processes the pictures itself."""
    from renderers.configs import config_from_name
    from renderers.qwen3_vl import Qwen3VLRenderer

    processor = SimpleNamespace(image_processor=ImageReader(str(folder), "").processor)
    renderer = Qwen3VLRenderer(chat_format.tokenizer, config_from_name("qwen3-vl"), processor=processor)
    return list(renderer.render_ids(messages, add_generation_prompt=True))


@pytest.mark.parametrize("width,height", SIZES)
def test_a_picture_has_as_many_patches_as_the_processor_makes(folder: Path, width: int, height: int) -> None:
    form = PictureFormat.of(folder)
    assert form is not None
    assert (1, *form.grid(width, height)) == image_of_url(str(folder), picture(width, height)).grid


def test_a_picture_that_is_too_narrow_for_the_processor_is_refused(folder: Path) -> None:
    form = PictureFormat.of(folder)
    assert form is not None
    with pytest.raises(ClientError, match="too narrow"):
        form.grid(5, 1001)


def test_ids_are_those_of_the_renderer_that_processes_the_pictures(
    chat_format: ChatFormat, folder: Path
) -> None:
    conversation = [
        {"role": "system", "content": "Be brief."},
        message("What is", picture(40, 30), "and", picture(60, 33, 1), "?"),
        {"role": "assistant", "content": "A cat."},
        message(picture(34, 60, 2)),
    ]
    expected = by_renderers(chat_format, folder, conversation)
    messages = received(*[dict(one) for one in conversation])
    ids = chat_format.render(messages, None, True)
    assert ids == expected
    mark = chat_format.tokenizer.token_id("<|image_pad|>")
    start = chat_format.tokenizer.token_id("<|vision_start|>")
    places = chat_format.placed(ids, messages)
    assert [ids[one.start - 1] for one in places] == [start] * 3
    assert sum(one.length for one in places) == ids.count(mark)
    assert all(set(ids[one.start : one.start + one.length]) == {mark} for one in places)


def test_a_continued_prompt_equals_the_whole_one(chat_format: ChatFormat) -> None:
    first, second = message("See", picture(40, 30)), message("And", picture(60, 33, 1), "this?")
    messages = received(first, {"role": "assistant", "content": "A cat."}, second)
    whole = chat_format.render(messages, None, True)
    before = chat_format.render(messages[:1], None, True)
    answer = [*chat_format.tokenizer.encode("A cat."), chat_format.tokenizer.token_id("<|im_end|>")]
    bridged = chat_format.bridge(before, answer, messages[2:], None, True)
    assert bridged == whole
    places = [*chat_format.placed(before, messages[:1]), *chat_format.placed(whole, messages[2:])]
    assert places == chat_format.placed(whole, messages)


def test_numbered_pictures_are_never_continued(chat_format: ChatFormat) -> None:
    options: dict[str, Any] = {"add_vision_id": True}
    messages = received(message("See", picture(40, 30)))
    ids = chat_format.render(messages, None, options)
    assert "Picture 1: " in chat_format.tokenizer.decode(ids)
    assert chat_format.bridge(ids, [5], messages, None, options) is None


def test_text_that_spells_a_mark_is_text(chat_format: ChatFormat) -> None:
    spelled = "<|vision_start|><|image_pad|><|vision_end|>"
    messages = received(message(spelled, picture(40, 30), spelled))
    ids = chat_format.render(messages, None, True)
    [place] = chat_format.placed(ids, messages)
    assert ids.count(chat_format.tokenizer.token_id("<|image_pad|>")) == place.length


def test_a_client_cannot_name_a_stored_picture() -> None:
    stored = dict(PicturePart("ab" * 32, "image/png", 10, 10))
    for part in (stored, {**stored, "text": "x"}):
        [read] = received({"role": "user", "content": [dict(part)]})
        assert [one["type"] for one in read["content"]] == ["text"]


def test_a_text_model_has_no_picture_format(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    assert PictureFormat.of(tmp_path) is None
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl", "image_token_id": 5}')
    assert PictureFormat.of(tmp_path) is None, "its folder does not define how pictures are processed"
