"""Raw prompts: text or ids as input, text as output, stored with exact ids."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.fakes.running_gateway import RunningGateway


def complete(gateway: RunningGateway, **options: Any) -> Any:
    return gateway.client.completions.create(**{"model": "small-qwen3", "prompt": "hello", **options})


def test_a_raw_prompt_is_sent_unchanged_and_its_answer_is_not_trimmed(gateway: RunningGateway) -> None:
    ids = gateway.says("  there, <think>\n how are you ")
    answer = complete(gateway, max_tokens=90)
    assert (
        answer.choices[0].text == "  there, <think>\n how are you "
        and answer.choices[0].finish_reason == "stop"
    )
    assert gateway.engine.requests[0]["input_ids"] == gateway.tokenizer.encode("hello")
    turn = gateway.turn(answer.id)
    assert turn.prompt_ids == gateway.tokenizer.encode("hello") and turn.completion_ids == ids
    assert turn.messages == [{"role": "user", "content": "hello", "format": "raw"}]
    assert turn.state == "captured" and answer.usage.prompt_tokens == len(turn.prompt_ids)


def test_prompt_ids_are_kept_unchanged(gateway: RunningGateway) -> None:
    gateway.says(" there")
    ids = [gateway.tokenizer.encode(letter)[0] for letter in "hello"]
    answer = complete(gateway, prompt=ids, echo=True)
    assert gateway.engine.requests[0]["input_ids"] == ids != gateway.tokenizer.encode("hello")
    assert answer.choices[0].text == "hello there" and gateway.turn(answer.id).prompt_ids == ids


@pytest.mark.parametrize("stream", [True, False])
def test_several_prompts_and_answers_are_distinguished_by_index(
    gateway: RunningGateway, stream: bool
) -> None:
    gateway.says(" there")
    answer = complete(gateway, prompt=["hello", "how"], n=2, stream=stream, echo=True)
    texts = dict.fromkeys(range(4), "")
    for part in answer if stream else [answer]:
        for choice in part.choices:
            texts[choice.index] += choice.text
    assert texts == {0: "hello there", 1: "hello there", 2: "how there", 3: "how there"}
    assert gateway.store.status.counts()["turns"] == {"captured": 4}


@pytest.mark.parametrize("stream", [True, False])
def test_log_probs_have_the_format_of_the_completions_api(gateway: RunningGateway, stream: bool) -> None:
    ids = gateway.says(" there, 你好")
    answer = complete(gateway, logprobs=2, stream=stream, max_tokens=40)
    parts = [part.choices[0].logprobs for part in (answer if stream else [answer])]
    tokens = [token for part in parts for token in part.tokens]
    assert len(tokens) == len(ids) - 1 and tokens[0] == gateway.tokenizer.decode(ids[:1])
    assert next(value for part in parts for value in part.token_logprobs) < 0
    offsets = [offset for part in parts for offset in part.text_offset]
    assert offsets[0] == 0 and offsets == sorted(offsets)
    assert all(tops for part in parts for tops in part.top_logprobs)


def test_sixteen_tokens_are_the_default_and_usage_ends_a_stream(gateway: RunningGateway) -> None:
    gateway.engine.say = gateway.tokenizer.encode("1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9")
    chunks = list(complete(gateway, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens == 16 and chunks[-2].choices[0].finish_reason == "length"


def test_a_chat_never_continues_the_ids_of_a_raw_prompt(gateway: RunningGateway) -> None:
    gateway.says("hi")
    complete(gateway)
    talk: Any = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    talk += [{"role": "user", "content": "so"}]
    gateway.client.chat.completions.create(model="small-qwen3", messages=talk)
    assert gateway.tokenizer.decode(gateway.engine.requests[1]["input_ids"]).startswith(
        "<|im_start|>user\nhello"
    )


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[1, 99999]]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["a"] * 9, "n": 2}, "prompt"),
        ({"logprobs": 99}, "logprobs"),
        ({"logprobs": 1, "echo": True}, "echo"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 4}, "best_of"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_invalid_fields_are_reported_by_name(
    gateway: RunningGateway, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        complete(gateway, **options)
    assert caught.value.param == param and gateway.engine.requests == []
