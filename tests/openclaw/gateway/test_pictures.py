"""Pictures in requests to a vision model: exact ids, limits, storage, training."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai import BadRequestError, OpenAI

from claw_base.picture_data import MOST_CHUNKS
from openclaw.trainer_hooks import gate_samples
from openclaw.trainer_hooks.rows import sample_dict
from openclaw.types import Judgement, SampleDraft, Vote
from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.server import EngineServer
from slime.engines.embedded.service import EngineService
from slime.errors import DataError
from slime.types import Sample
from slime.vision.place import ImagePlace
from slime.vision.reading import ImageReader
from tests.fakes.fixtures import MakeTrainer
from tests.fakes.hook_flags import hook_flags, pipeline_on
from tests.fakes.running_gateway import RunningGateway, StartGateway
from tests.fakes.served import served
from tests.fakes.tiny_vision_model import (
    load_reference,
    message,
    picture,
    reference_log_probs,
    save_served_model,
)

ASKED: dict[str, Any] = {"model": "tiny", "max_tokens": 8, "extra_body": {"return_token_ids": True}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_served_model(tmp_path_factory.mktemp("served") / "small-qwen3-vl", seed=1)


@pytest.fixture(scope="module")
def engine_url(folder: Path) -> Iterator[str]:
    service = EngineService(EmbeddedArguments(model_path=str(folder)))
    with served(EngineServer(service).app()) as url:
        yield url


@pytest.fixture
def make_args(folder: Path, training_args: Callable[..., Any]) -> Callable[..., Any]:
    return lambda **changes: training_args(**({"model_folder": str(folder), "lr": 1e-3} | changes))


@pytest.fixture
def seeing(start_gateway: StartGateway, folder: Path, engine_url: str) -> RunningGateway:
    """A gateway of a vision model on the embedded engine."""
    return start_gateway(model_path=str(folder), engine_url=(engine_url,))


def ask(client: OpenAI, *messages: Any) -> Any:
    return client.chat.completions.create(messages=list(messages), **ASKED)


def expected_ids(folder: Path, seeing: RunningGateway, urls: list[str], texts: list[str]) -> list[int]:
    """Returns the prompt's ids with the pictures processed by the trainer's reader: texts before, between, after."""
    tokenizer = seeing.tokenizer
    ids = tokenizer.encode_markup("<|im_start|>user\n" + texts[0])
    for text in texts[1:]:
        ids += tokenizer.encode_markup("<|vision_start|><|image_pad|><|vision_end|>" + text)
    ids += tokenizer.encode_markup("<|im_end|>\n<|im_start|>assistant\n")
    return ImageReader(str(folder), str(seeing.buffer / "read")).placed(ids, urls)[0]


def test_a_picture_is_answered_from_the_ids_that_the_processor_gives(
    seeing: RunningGateway, folder: Path
) -> None:
    urls = [picture(40, 30), picture(60, 33, 1)]
    answer = ask(seeing.client, message("What is", urls[0], "and", urls[1], "?"))
    assert answer.prompt_token_ids == expected_ids(folder, seeing, urls, ["What is", "and", "?"])
    assert answer.usage.prompt_tokens == len(answer.prompt_token_ids)
    turn = seeing.turn(answer.id)
    assert (turn.prompt_ids, turn.completion_ids) == (answer.prompt_token_ids, answer.choices[0].token_ids)
    assert [one.length for one in turn.pictures] == [4, 8]


def test_log_probs_are_those_of_transformers(seeing: RunningGateway, folder: Path, tmp_path: Path) -> None:
    url = picture(60, 33, 1)
    turn = seeing.turn(ask(seeing.client, message("What is this?", url)).id)
    grid, file = ImageReader(str(folder), str(tmp_path)).image(url)
    [place] = turn.pictures
    sample = Sample(
        tokens=turn.prompt_ids + turn.completion_ids,
        response_length=len(turn.completion_ids),
        images=[ImagePlace(place.start, place.length, grid, file)],
        temperature=turn.temperature,
    )
    expected = reference_log_probs(load_reference(folder), sample)
    assert turn.completion_log_probs == pytest.approx(expected, abs=1e-4)
    blind = Sample(tokens=sample.tokens, response_length=sample.response_length, temperature=turn.temperature)
    assert reference_log_probs(load_reference(folder), blind) != pytest.approx(expected, abs=1e-2), "it sees"


def test_a_conversation_with_pictures_is_continued_from_its_own_ids(seeing: RunningGateway) -> None:
    first = message("What is this?", picture(40, 30))
    answer = ask(seeing.client, first)
    said = {"role": "assistant", "content": answer.choices[0].message.content}
    again = ask(seeing.client, first, said, message("And", picture(60, 33, 1), "this?"))
    before, turn = seeing.turn(answer.id), seeing.turn(again.id)
    assert (turn.parent_id, turn.render_mode) == (before.id, "bridge")
    own = before.prompt_ids + before.completion_ids
    assert turn.prompt_ids[: len(own)] == own
    assert turn.pictures[0] == before.pictures[0] and len(turn.pictures) == 2
    mark = seeing.tokenizer.token_id("<|image_pad|>")
    for place in turn.pictures:
        assert set(turn.prompt_ids[place.start : place.start + place.length]) == {mark}


def encoded(form: str, width: int, height: int) -> str:
    from PIL import Image

    out = io.BytesIO()
    Image.new("L", (width, height)).save(out, form)
    kind = {"PNG": "png", "GIF": "gif"}[form]
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}"


def of_many_parts(url: str) -> str:
    """Returns a PNG with more chunks than are read."""
    head, _, data = url.partition(",")
    png, chunk = base64.b64decode(data), bytes(4) + b"teSt" + zlib.crc32(b"teSt").to_bytes(4)
    return f"{head},{base64.b64encode(png[:33] + chunk * MOST_CHUNKS + png[33:]).decode()}"


GOOD = picture(40, 30)
REFUSED = {
    "an address": ("https://example.com/cat.png", "fetches no URL"),
    "a file": ("file:///etc/passwd", "fetches no URL"),
    "no base64": ("data:image/png;base64,%%%", "not base64"),
    "no picture": ("data:image/png;base64,AAAA", "not a picture"),
    "another format": (encoded("GIF", 4, 4), "not a picture in PNG, JPEG or WebP"),
    "a damaged picture": (GOOD[:-400], "cannot be read"),
    "too many pixels": (encoded("PNG", 4097, 4096), "too large (4097 x 4096 pixels)"),
    "a decompression bomb": (encoded("PNG", 15_000, 15_000), "too large"),
    "a picture of too many parts": (of_many_parts(GOOD), "chunks"),
    "a narrow picture": (encoded("PNG", 1001, 5), "too narrow"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_picture_that_is_not_accepted_is_refused_in_one_line(seeing: RunningGateway, name: str) -> None:
    url, reason = REFUSED[name]
    with pytest.raises(BadRequestError) as refused:
        part = {"type": "image_url", "image_url": {"url": url}}
        ask(seeing.client, {"role": "user", "content": [part]})
    assert isinstance(refused.value.body, dict)
    text = refused.value.body["message"]
    assert reason in text and "\n" not in text and len(text) < 300


def test_too_many_pictures_are_refused(seeing: RunningGateway) -> None:
    with pytest.raises(BadRequestError, match="at most 32 pictures"):
        ask(seeing.client, message(*[GOOD] * 33))


def test_an_answer_whose_prompt_the_engine_reads_differently_is_refused(
    start_gateway: StartGateway, folder: Path
) -> None:
    gateway = start_gateway(model_path=str(folder))
    gateway.says("A cat.")
    gateway.engine.prompt_tokens = 99
    response = gateway.http.post("/v1/chat/completions", json={"messages": [message("See", GOOD)]})
    assert response.status_code == 502 and "reads 99 tokens" in response.json()["error"]["message"]
    [sent] = gateway.engine.requests
    assert sent["image_data"] == [GOOD]
    assert sent["input_ids"].count(gateway.tokenizer.token_id("<|image_pad|>")) == 1


def test_a_text_model_gets_a_placeholder(gateway: RunningGateway) -> None:
    gateway.says("Yes.")
    answer = ask(gateway.client, message("See", "https://example.com/cat.png", GOOD))
    asked = gateway.tokenizer.decode(gateway.turn(answer.id).prompt_ids)
    assert (
        "[image_url left out: this model reads text]" in asked
        and "image_data" not in gateway.engine.requests[0]
    )


def answered(gateway: RunningGateway, route: str, body: dict[str, Any]) -> Any:
    response = gateway.http.post(f"/v1/{route}", json={"return_token_ids": True, **body})
    assert response.status_code == 200, response.text
    return response.json()


def test_all_dialects_read_a_picture_in_the_same_way(seeing: RunningGateway) -> None:
    text, url = "What is this?", picture(60, 33, 1)
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    in_chat = answered(seeing, "chat/completions", {"max_tokens": 4, "messages": [message(text, url)]})
    parts = [{"type": "input_text", "text": text}, {"type": "input_image", "image_url": url}]
    asked = {"max_output_tokens": 4, "input": [{"role": "user", "content": parts}]}
    in_responses = answered(seeing, "responses", {**asked, "reasoning": {"effort": "none"}})
    blocks = [{"type": "text", "text": text}, {"type": "image", "source": source}]
    in_messages = answered(
        seeing, "messages", {"max_tokens": 4, "messages": [{"role": "user", "content": blocks}]}
    )
    ids = in_chat["prompt_token_ids"]
    assert in_responses["prompt_token_ids"] == ids == in_messages["prompt_token_ids"]
    counted = {"model": "m", "messages": [{"role": "user", "content": blocks}]}
    response = seeing.http.post("/v1/messages/count_tokens", json=counted)
    assert response.json() == {"input_tokens": len(ids)}
    again = {"max_output_tokens": 4, "input": "And now?", "previous_response_id": in_responses["id"]}
    later = seeing.turn(answered(seeing, "responses", again)["id"])
    assert later.pictures == seeing.turn(in_responses["id"]).pictures, "the picture is read from the store"


def test_a_tool_result_may_be_a_picture(seeing: RunningGateway) -> None:
    url = picture(40, 30)
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": source}]}
    call = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    answer = answered(seeing, "messages", {"max_tokens": 4, "messages": messages})
    assert len(seeing.turn(answer["id"]).pictures) == 1


def test_turns_with_pictures_are_trained_on_what_the_engine_read(
    seeing: RunningGateway, make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = seeing.store
    first = message("What is this?", picture(40, 30))
    answer = ask(seeing.client, first)
    said = {"role": "assistant", "content": answer.choices[0].message.content}
    more = ask(seeing.client, first, said, message("And", picture(60, 33, 1), "this?"))
    for one, score in ((answer, 1.0), (more, -1.0)):
        turn = seeing.turn(one.id)
        store.turns.answer(turn.id, [{"role": "user", "content": "Hm."}])
        judgement = Judgement(kind="eval", score=score, votes=[Vote(score=int(score))], judge="test")
        assert store.judgements.finish(turn.id, [judgement], SampleDraft(turn_id=turn.id, reward=score))
    rows = [sample_dict(record, 0) for record in store.samples.lease(0, 2)]
    samples = [Sample.from_dict(json.loads(json.dumps(row))) for row in rows]
    assert [len(sample.images) for sample in samples] == [1, 2]
    monkeypatch.setattr(gate_samples, "pipeline_of", lambda args: pipeline_on(store, args))
    compared = gate_samples.gate_samples(hook_flags(str(seeing.buffer)), 0, 0)
    assert sorted(len(one["images"]) for one in compared) == [1, 2], (
        "the gate compares answers to pictures too"
    )
    metrics = make_trainer().train(0, samples)
    assert metrics["train_rollout_logprob_abs_diff_max"] < 1e-4
    samples[0].images = [replace(samples[0].images[0], file=picture(33, 60))]
    with pytest.raises(DataError, match="patches for the trainer"):
        make_trainer().log_probs(samples[:1])


def test_a_forgotten_person_leaves_no_picture(seeing: RunningGateway) -> None:
    url = picture(40, 30, 7)
    data = base64.b64decode(url.partition(",")[2])
    turn = seeing.turn(
        answered(seeing, "chat/completions", {"user": "ann", "messages": [message(url)]})["id"]
    )
    [place] = turn.pictures
    assert seeing.store.pictures.named([place.sha256])[place.sha256].data == data
    files = [file for file in seeing.buffer.iterdir() if file.is_file()]
    assert any(data in file.read_bytes() for file in files)
    response = seeing.http.delete("/admin/persons/ann/content")
    assert response.status_code == 200, response.text
    assert not seeing.store.pictures.named([place.sha256])
    assert not any(data[:200] in file.read_bytes() for file in files if file.exists())


def test_a_request_that_is_not_recorded_stores_no_picture(seeing: RunningGateway) -> None:
    body = {"train": False, "max_tokens": 4, "messages": [message(picture(40, 30, 8))]}
    answered(seeing, "chat/completions", body)
    assert seeing.store.status.counts()["turns"] == {}
