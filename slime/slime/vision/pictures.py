"""Pictures in messages, and the corresponding fields in requests to an engine. Imports no torch."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from claw_base.image_marks import with_single_marks
from slime.errors import ConfigError, EngineError
from slime.vision.place import ImagePlace

LEFT_OUT = "[image left out]"
Part = Mapping[str, object]
"""A JSON object: a message, a part of one, or an answer."""


def pictures_of(messages: object) -> list[str]:
    """Returns the URLs of the pictures in messages of OpenAI's API, in order: parts `{"type": "image_url",
    "image_url": {"url": "data:image/png;base64,..."}}` of a content list."""
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        return []
    return [url for message in messages for part in _parts(message) for url in _url(part)]


def without_pictures(content: Sequence[Part]) -> list[dict[str, str]]:
    """Returns the parts of a content, with pictures replaced by placeholders and texts by their lengths."""
    return [{"type": "text", "text": _left_out(part)} for part in content]


def texts_alone(content: Sequence[Part]) -> list[Part]:
    """Returns the parts of a content with pictures replaced by placeholders; texts are unchanged."""
    left_out: Part = {"type": "text", "text": LEFT_OUT}
    return [left_out if part.get("type") == "image_url" else part for part in content]


def text_of(content: object) -> str:
    """Returns the texts of a content without its pictures."""
    if not isinstance(content, list):
        return str(content)
    return "".join(str(part["text"]) for part in content if part.get("type") == "text")


def _left_out(part: Part) -> str:
    return (
        f"[{len(str(part.get('text', '')))} characters left out]" if part.get("type") == "text" else LEFT_OUT
    )


def _parts(message: Part) -> Iterable[Part]:
    content = message.get("content")
    return content if isinstance(content, list) else ()


def _url(part: Part) -> Iterable[str]:
    if part.get("type") == "image_url":
        named = part.get("image_url")
        yield str(named.get("url") if isinstance(named, Mapping) else named)


def image_fields(
    backend: str, ids: Sequence[int], images: Sequence[ImagePlace], pictures: Sequence[str]
) -> dict[str, Any]:
    """Returns the fields of an engine request for the images among its tokens `ids` [T]. The embedded engine gets
    processed images; SGLang gets the pictures, which it processes itself, and ids with one mark per picture.

    Raises:
        ConfigError: the engine does not support images.
        EngineError: SGLang would change the ids.
    """
    if not images:
        return {}
    if backend == "sglang":
        return {"input_ids": marked_ids(ids, images), "image_data": list(pictures)}
    if backend != "embedded":
        raise ConfigError(f"--rollout-backend {backend} takes no images; embedded and sglang do")
    bytes_of = ((image.start, Path(image.file).read_bytes()) for image in images)
    return {"image_data": [{"start": at, "data": base64.b64encode(data).decode()} for at, data in bytes_of]}


def marked_ids(ids: Sequence[int], images: Sequence[ImagePlace]) -> list[int]:
    """Returns the ids with one mark instead of all tokens of an image.

    Raises:
        EngineError: the ids contain a mark that does not belong to an image, such as a sampled one.
    """
    try:
        return with_single_marks(ids, [(image.start, image.length) for image in images])
    except ValueError as error:
        raise EngineError(f"{error}: SGLang would read other tokens") from error


def check_prompt(answer: Part, images: Sequence[ImagePlace], tokens: int) -> None:
    """Checks the number of tokens that SGLang creates for a prompt's pictures. Raises EngineError if it differs from
    ours."""
    meta = answer.get("meta_info")
    read = meta.get("prompt_tokens", tokens) if isinstance(meta, Mapping) else tokens
    if images and read != tokens:
        raise EngineError(
            f"an engine read {read} tokens of a prompt with images that has {tokens}: it is not what is trained"
        )
