"""Tests stops, streams, aborts and rejections over HTTP."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from tokenizers import Tokenizer

EOS = 3


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(4, 300), k=length)


@pytest.fixture(scope="module")
def tokenizer(model_path):
    return Tokenizer.from_file(str(model_path / "tokenizer.json"))


@pytest.fixture(scope="module")
def greedy_ids(server):
    """Returns the model's answer to prompt_of(15) without a stop condition."""
    return server.generate(prompt_of(15), max_new_tokens=60, temperature=0, ignore_eos=True)["output_ids"]


def idle(server) -> dict:
    """Waits until no request runs; returns /server_info."""
    for _ in range(200):
        info = server.client.get("/server_info").json()
        if info["waiting"] + info["prefilling"] + info["decoding"] == 0:
            return info
        time.sleep(0.02)
    raise AssertionError(info)


def test_a_stop_id_ends_the_answer_and_stays_in_the_ids(server, tokenizer, greedy_ids):
    stop = greedy_ids[10]
    first = greedy_ids.index(stop)
    answer = server.generate(
        prompt_of(15), max_new_tokens=60, temperature=0, ignore_eos=True, stop_token_ids=[stop]
    )
    assert answer["output_ids"] == greedy_ids[: first + 1]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert answer["text"] == tokenizer.decode(greedy_ids[:first])


def test_end_of_sequence_stops_unless_ignored(server):
    def lengths(**options) -> list[int]:
        def one(seed: int) -> dict:
            prompt = prompt_of(8, seed)
            return server.generate(prompt, max_new_tokens=200, temperature=1.5, seed=seed, **options)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(one, range(8)))
        for answer in answers:
            if answer["meta_info"]["finish_reason"]["type"] == "stop":
                assert answer["meta_info"]["finish_reason"]["matched"] == EOS == answer["output_ids"][-1]
                assert EOS not in answer["output_ids"][:-1]
        return [len(answer["output_ids"]) for answer in answers]

    assert min(lengths()) < 200
    assert lengths(ignore_eos=True) == [200] * 8


def test_a_stop_string_ends_the_answer_and_is_cut_from_the_text(server, tokenizer, greedy_ids):
    text = tokenizer.decode(greedy_ids)
    stop = next(text[i : i + 3] for i in range(20, len(text)) if text[i : i + 3].isascii())
    options = {"max_new_tokens": 60, "temperature": 0, "ignore_eos": True, "stop": ["never there", stop]}
    answer = server.generate(prompt_of(15), **options)
    assert answer["text"] == text[: text.find(stop)]
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert stop in tokenizer.decode(answer["output_ids"])
    assert stop not in tokenizer.decode(answer["output_ids"][:-1])
    untrimmed = server.generate(prompt_of(15), no_stop_trim=True, **options)
    assert stop in untrimmed["text"]
    for chunk in server.stream(prompt_of(15), **options):
        assert answer["text"].startswith(chunk["text"])


def test_stream_chunks_are_cumulative_and_only_the_last_has_a_finish_reason(server, tokenizer, greedy_ids):
    chunks = list(server.stream(prompt_of(15), max_new_tokens=60, temperature=0, ignore_eos=True))
    assert len(chunks) > 3
    previous: list[int] = []
    for chunk in chunks[:-1]:
        meta = chunk["meta_info"]
        assert meta["finish_reason"] is None and "weight_versions" not in meta
        assert chunk["output_ids"][: len(previous)] == previous
        assert meta["completion_tokens"] == len(chunk["output_ids"]) == len(meta["output_token_logprobs"])
        previous = chunk["output_ids"]
    last = chunks[-1]
    assert last["output_ids"] == greedy_ids
    assert last["text"] == tokenizer.decode(greedy_ids)
    assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 60}
    assert last["meta_info"]["weight_versions"] == [{"version": "0", "start": 0, "end": 60}]


def test_a_text_prompt_equals_its_ids(server, tokenizer):
    options = {"sampling_params": {"max_new_tokens": 5, "temperature": 0}}
    by_text = server.post("/generate", {"text": "ai be cold", **options}).json()
    by_ids = server.post("/generate", {"input_ids": tokenizer.encode("ai be cold").ids, **options}).json()
    assert by_text["output_ids"] == by_ids["output_ids"]
    assert "output_token_logprobs" not in by_text["meta_info"]


def test_abort_ends_a_running_request_and_keeps_its_tokens(server):
    chunks = []
    for chunk in server.stream(
        prompt_of(15), rid="mine", max_new_tokens=3000, temperature=1.0, ignore_eos=True
    ):
        if not chunks:
            assert server.post("/abort_request", {"rid": "mine"}).status_code == 200
        chunks.append(chunk)
    assert chunks[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    assert 0 < len(chunks[-1]["output_ids"]) < 3000
    idle(server)


def test_abort_of_an_unknown_id_has_no_effect(server):
    assert server.post("/abort_request", {"rid": "nobody"}).status_code == 200
    assert server.generate(prompt_of(5), max_new_tokens=2)["output_ids"]


def test_a_disconnected_client_frees_its_place(server):
    body = {"input_ids": prompt_of(5), "sampling_params": {"max_new_tokens": 4000, "ignore_eos": True}}
    generated = idle(server)["generated_tokens"]
    with server.client.stream("POST", "/generate", json={**body, "stream": True}) as answer:
        next(answer.iter_lines())
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/generate", json=body, timeout=0.2, trust_env=False)
    assert idle(server)["generated_tokens"] - generated < 8000


def test_a_long_prompt_does_not_stall_other_requests(server):
    """Counted in steps: a stream gets a token in each step that processes a part of the long prompt."""
    steps: list[tuple[int, int]] = []
    long_done = threading.Event()

    def read_long_prompt() -> None:
        server.generate(prompt_of(3500), max_new_tokens=1, logprob_start_len=0)
        long_done.set()

    reader = threading.Thread(target=read_long_prompt)
    stream = server.stream(prompt_of(5), max_new_tokens=2000, temperature=1.0, ignore_eos=True, rid="short")
    next(stream)
    start = server.client.get("/server_info").json()
    reader.start()
    for chunk in stream:
        steps.append((len(chunk["output_ids"]), 0))
        if long_done.is_set():
            server.post("/abort_request", {"rid": "short"})
    reader.join()
    end = server.client.get("/server_info").json()
    assert end["prompt_tokens"] - start["prompt_tokens"] == 3500
    tokens = steps[-1][0] - 1
    assert tokens >= 3500 // 64 - 1
    assert end["steps"] - start["steps"] >= 3500 // 64


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"input_ids": [4, 320]}, "input_ids"),
        ({"input_ids": [-1]}, "input_ids"),
        ({"input_ids": []}, "input_ids"),
        ({"input_ids": None}, "input_ids"),
        ({"text": "both"}, "input_ids"),
        ({"input_ids": [5] * 4097}, "context"),
        ({"input_ids": [5] * 4000, "sampling_params": {"max_new_tokens": 97}}, "max_new_tokens"),
        ({"sampling_params": {"temperature": -1}}, "sampling_params.temperature"),
        ({"sampling_params": {"top_p": 0}}, "sampling_params.top_p"),
        ({"sampling_params": {"best_of": 4}}, "sampling_params.best_of"),
        ({"sampling_params": {"json_schema": "{"}}, "sampling_params.json_schema"),
        ({"sampling_params": {"stop": ""}}, "sampling_params.stop"),
        ({"sampling_params": {"logit_bias": {"320": 1}}}, "sampling_params.logit_bias"),
        ({"logprob_start_len": 3, "return_logprob": True}, "logprob_start_len"),
        ({"token_ids_logprob": [999], "return_logprob": True}, "token_ids_logprob"),
        ({"unheard_of": 1}, "unheard_of"),
    ],
)
def test_a_bad_request_is_rejected_and_affects_no_other(server, change, named):
    stream = server.stream(prompt_of(5), max_new_tokens=30, temperature=0, ignore_eos=True)
    next(stream)
    answer = server.post("/generate", {"input_ids": [4, 5, 6], **change})
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]
    assert list(stream)[-1]["meta_info"]["completion_tokens"] == 30


def test_a_body_that_is_not_json_is_refused(server):
    answer = server.client.post("/generate", content=b"{not json")
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


def test_a_request_id_in_use_is_refused(server):
    stream = server.stream(prompt_of(5), rid="twice", max_new_tokens=3000, temperature=1.0, ignore_eos=True)
    next(stream)
    answer = server.post("/generate", {"input_ids": [4, 5], "rid": "twice"})
    server.post("/abort_request", {"rid": "twice"})
    assert answer.status_code == 409 and "twice" in answer.json()["error"]["message"]
    assert list(stream)[-1]["meta_info"]["finish_reason"]["type"] == "abort"


def test_requests_beyond_the_capacity_wait(server):
    with ThreadPoolExecutor(40) as pool:
        answers = list(
            pool.map(
                lambda s: server.generate(prompt_of(5, s), max_new_tokens=20, ignore_eos=True), range(40)
            )
        )
    assert [len(answer["output_ids"]) for answer in answers] == [20] * 40


def test_pause_in_place_holds_streams_until_continue(server, greedy_ids):
    stream = server.stream(prompt_of(15), max_new_tokens=60, temperature=0, ignore_eos=True)
    next(stream)
    assert server.post("/pause_generation", {"mode": "in_place"}).json()["success"]
    before = server.client.get("/server_info").json()
    assert before["paused"]
    time.sleep(0.1)
    assert server.client.get("/server_info").json()["steps"] == before["steps"]
    assert server.client.get("/health").status_code == 200
    server.post("/continue_generation", {})
    assert list(stream)[-1]["output_ids"] == greedy_ids


def test_pause_by_retracting_recomputes_and_changes_no_token(server, greedy_ids):
    stream = server.stream(prompt_of(15), max_new_tokens=60, temperature=0, ignore_eos=True)
    next(stream)
    server.post("/pause_generation", {"mode": "retract"})
    server.post("/continue_generation", {})
    last = list(stream)[-1]
    assert last["output_ids"] == greedy_ids
    assert last["meta_info"]["total_retractions"] <= 1


def test_memory_is_released_and_resumed_without_changing_a_token(server, greedy_ids):
    stream = server.stream(prompt_of(15), max_new_tokens=60, temperature=0, ignore_eos=True)
    next(stream)
    assert server.post("/release_memory_occupation", {}).json()["success"]
    assert server.client.get("/server_info").json()["decoding"] == 0, "nothing is stored any more"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/generate", json={"input_ids": [5]}, timeout=0.2, trust_env=False)
    for _ in range(2):  # asking again has no effect
        assert server.post("/resume_memory_occupation", {}).json()["success"]
    assert list(stream)[-1]["output_ids"] == greedy_ids
    refused = server.post("/release_memory_occupation", {"tags": ["weights"]})
    assert refused.status_code == 400 and "kv_cache together" in refused.text


def test_pause_by_default_aborts_running_requests_and_holds_new_ones(server):
    stream = server.stream(prompt_of(15), max_new_tokens=3000, temperature=0, ignore_eos=True)
    next(stream)
    server.post("/pause_generation", {})
    assert list(stream)[-1]["meta_info"]["finish_reason"]["type"] == "abort"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/generate", json={"input_ids": [5]}, timeout=0.2, trust_env=False)
    server.post("/continue_generation", {})
    assert server.generate([5, 6], max_new_tokens=2)["output_ids"]


def test_flush_cache_succeeds_while_requests_run(server, greedy_ids):
    stream = server.stream(prompt_of(15), max_new_tokens=60, temperature=0, ignore_eos=True)
    next(stream)
    assert server.post("/flush_cache", {}).json()["success"]
    assert list(stream)[-1]["output_ids"] == greedy_ids
