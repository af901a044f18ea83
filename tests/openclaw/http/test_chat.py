"""An OpenAI client with the gateway: options, and non-streaming answers."""

from __future__ import annotations

from tests.fakes.chat_client import HELLO, MODEL, ask, streamed
from tests.fakes.running_gateway import RunningGateway


def test_a_non_streaming_answer_has_text_usage_and_session(gateway: RunningGateway) -> None:
    ids = gateway.says("the answer is 42.")
    answer = ask(gateway)
    assert answer.choices[0].message.content == "the answer is 42."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == len(ids)
    assert answer.usage.prompt_tokens == len(gateway.engine.requests[0]["input_ids"])
    assert answer.session_id == gateway.turn(answer.id).session_id


def test_ids_and_log_probs_are_returned_only_if_requested(gateway: RunningGateway) -> None:
    gateway.says("hello")
    answer = gateway.http.post("/v1/chat/completions", json={"messages": HELLO}).json()
    assert set(answer) == {"id", "object", "created", "model", "session_id", "choices", "usage"}
    assert set(answer["choices"][0]) == {"index", "message", "logprobs", "finish_reason"}


def test_sampling_options_reach_the_engine(gateway: RunningGateway) -> None:
    gateway.says("hello")
    ask(gateway, temperature=1.1, top_p=0.9, seed=5, max_tokens=7, extra_body={"top_k": 4})
    sent = gateway.engine.requests[0]["sampling_params"]
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["sampling_seed"]) == (1.1, 0.9, 4, 5)
    assert sent["max_new_tokens"] == 7
    ask(gateway)
    assert gateway.engine.requests[1]["sampling_params"]["temperature"] == 0.7  # from generation_config.json


def test_log_probs_of_every_token_are_returned_if_requested(gateway: RunningGateway) -> None:
    gateway.says("hello there")
    whole = ask(gateway, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert "".join(entry.token for entry in whole) == "hello there"
    assert [len(entry.top_logprobs) for entry in whole] == [2] * len(whole)
    chunks = streamed(gateway, logprobs=True)
    pieces = [entry for c in chunks for entry in c.choices[0].logprobs.content]
    assert [entry.logprob for entry in pieces] == [entry.logprob for entry in whole]


def test_reasoning_can_be_disabled(gateway: RunningGateway) -> None:
    gateway.says("hello")
    ask(gateway, extra_body={"chat_template_kwargs": {"enable_thinking": False}})
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_developer_messages_are_system_messages_and_parts_are_joined(gateway: RunningGateway) -> None:
    gateway.says("hello")
    parts = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    ask(gateway, messages=[{"role": "developer", "content": "be kind"}, {"role": "user", "content": parts}])
    prompt = gateway.tokenizer.decode(gateway.engine.requests[0]["input_ids"])
    assert prompt.startswith("<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n")


def test_models_are_listed(gateway: RunningGateway) -> None:
    assert [model.id for model in gateway.client.models.list()] == [MODEL]
    assert gateway.client.models.retrieve(MODEL).id == MODEL
