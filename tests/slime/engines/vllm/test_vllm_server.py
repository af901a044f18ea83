"""Tests the server that hosts vLLM: weights change during requests, with verification, and wrongly loaded weights are
restored."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

from slime.engines.client import EngineControl, EngineControlError
from slime.engines.vllm.engine import HostedEngine
from slime.engines.vllm.server import VLLMServer
from slime.engines.vllm.weights import HostedWeights
from slime.weights.checksum import weights_checksum
from tests.fakes.engine_process import body
from tests.fakes.sglang import Running
from tests.fakes.tiny_engine_model import plain_model, save_model
from tests.fakes.vllm import ClientError, FakeLLM, make_params

if TYPE_CHECKING:
    from transformers import PreTrainedModel


PROMPT = list(range(10, 30))


class Hosted:
    """Our server on a fake AsyncLLM, as `slime.engines.vllm.server` builds it."""

    def __init__(self, folder: Path) -> None:
        self.llm = FakeLLM(folder, plain_model)
        engine = HostedEngine(self.llm, make_params, (ValueError, ClientError))
        self.ended = threading.Event()
        weights = HostedWeights(engine)
        asyncio.run(weights.prove_first(str(folder), 0, None))
        self.server = VLLMServer(
            engine, weights, {"model_path": str(folder), "version": "0.32.0"}, self.ended.set
        )

    def app(self) -> Any:
        return self.server.app()


@pytest.fixture
def hosted(model_path: Path) -> Iterator[Any]:
    torch.set_num_threads(1)
    running = Running(Hosted(model_path))
    running.http = httpx.Client(base_url=running.url, timeout=60.0, trust_env=False)
    running.control = EngineControl(running.url, "vllm")
    yield running
    running.http.close()
    running.control.close()
    running.close()


def generate(hosted: Any, prompt: list[int] = PROMPT, **options: Any) -> dict[str, Any]:
    answer = hosted.http.post("/generate", json=body(prompt, **options))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def checksum_of(folder: Path) -> str:
    return weights_checksum(load_file(folder / "model.safetensors"))


def log_probs(answer: dict[str, Any]) -> list[float]:
    return [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]


def test_a_stream_continues_through_an_update_and_reports_each_tokens_version(
    hosted: Any,
    other_weights: Path,
    reference: PreTrainedModel,
    other_reference: PreTrainedModel,
    sampled_log_probs: Callable[..., list[float]],
) -> None:
    request = body(PROMPT, True, max_new_tokens=120, temperature=0.8, ignore_eos=True)
    chunks, checksum = [], checksum_of(other_weights)
    with hosted.http.stream("POST", "/generate", json={**request, "stream": True}) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: {"))
        chunks.append(next(lines))
        assert hosted.control.prepare(str(other_weights), 4) == checksum
        assert hosted.control.switch(4) == checksum
        chunks += lines
    last = json.loads(chunks[-1].removeprefix("data: "))
    spans = last["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == ["0", "4"] and spans[-1]["end"] == 120
    ids, change = last["output_ids"], spans[0]["end"]
    expected = sampled_log_probs(reference, PROMPT, ids, 0.8)[:change]
    expected += sampled_log_probs(other_reference, PROMPT, ids, 0.8)[change:]
    assert log_probs(last) == pytest.approx(expected, abs=1e-4)
    assert hosted.fake.llm.calls[-6:] == [
        "slime_expect", "slime_expected", "pause keep True", "slime_load", "slime_compare", "resume"
    ]  # fmt: skip
    info = hosted.control.info()
    assert (info.version, info.checksum, info.max_context_length) == (4, checksum, 4096)


def test_a_stale_head_is_detected_and_requests_continue_with_the_old_weights(
    hosted: Any,
    model_path: Path,
    other_weights: Path,
    reference: PreTrainedModel,
    sampled_log_probs: Callable[..., list[float]],
) -> None:
    hosted.fake.llm.faults.add("stale_head")
    answers: list[dict[str, Any]] = []
    under_way = threading.Thread(
        target=lambda: answers.append(generate(hosted, max_new_tokens=60, temperature=1.0, ignore_eos=True))
    )
    under_way.start()
    hosted.control.prepare(str(other_weights), 4)
    with pytest.raises(
        EngineControlError, match=r"1 tensors in vLLM differ from those in .*, for example lm_head.weight"
    ):
        hosted.control.switch(4)
    under_way.join()
    [answer] = answers
    assert answer["meta_info"]["weight_versions"] == [{"version": "0", "start": 0, "end": 60}]
    expected = sampled_log_probs(reference, PROMPT, answer["output_ids"])
    assert log_probs(answer) == pytest.approx(expected, abs=1e-4)
    info = hosted.control.info()
    assert (info.version, info.checksum) == (0, checksum_of(model_path))
    hosted.fake.llm.faults.clear()
    assert hosted.control.switch(4) == checksum_of(other_weights)


def test_an_engine_that_cannot_load_new_or_old_weights_exits(hosted: Any, other_weights: Path) -> None:
    hosted.control.prepare(str(other_weights), 4)
    hosted.fake.llm.faults.add("refuses")
    with pytest.raises(EngineControlError, match="a worker failed; then loading the previous version"):
        hosted.control.switch(4)
    assert hosted.fake.ended.is_set()
    assert "resume" not in hosted.fake.llm.calls


def test_correct_tensors_with_wrong_log_probs_fail_verification(hosted: Any, other_weights: Path) -> None:
    hosted.control.prepare(str(other_weights), 4)
    hosted.fake.llm.faults.add("computes_otherwise")
    with pytest.raises(
        EngineControlError, match=r"log-probs of a known text differ by .* vLLM does not serve"
    ):
        hosted.control.switch(4)
    assert (hosted.control.info().version, hosted.control.info().checksum) == (4, "")


def test_weights_that_cannot_be_prepared_are_rejected_without_loading(hosted: Any, tmp_path: Path) -> None:
    untied = save_model(tmp_path / "untied", seed=3, tie=False)
    for folder, said in (
        (tmp_path / "absent", "is not a folder"),
        (untied, "has 1 additional tensors: lm_head.weight"),
    ):
        with pytest.raises(EngineControlError, match=said):
            hosted.control.prepare(str(folder), 4)
    with pytest.raises(EngineControlError, match="weight_version 4 is not prepared; version 0 is live"):
        hosted.control.switch(4)
    with pytest.raises(EngineControlError, match=r"weight_version: .*must be a whole number"):
        hosted.control.switch("four")
    assert "slime_load" not in hosted.fake.llm.calls


def test_a_prompt_is_scored_from_the_requested_position_without_sampling(
    hosted: Any, reference: PreTrainedModel, log_probs_of: Callable[..., torch.Tensor]
) -> None:
    answer = generate(hosted, logprob_start_len=12, top_logprobs_num=2, max_new_tokens=0)
    meta, table = answer["meta_info"], log_probs_of(reference, PROMPT)
    assert answer["output_ids"] == [] and meta["finish_reason"] == {"type": "length", "length": 0}
    assert meta["input_token_logprobs"][0] == [None, PROMPT[12], None]
    expected = [table[place - 1, PROMPT[place]].item() for place in range(13, 20)]
    assert [entry[0] for entry in meta["input_token_logprobs"][1:]] == pytest.approx(expected, abs=1e-5)
    assert meta["input_top_logprobs"][0] is None
    assert [entry[1] for entry in meta["input_top_logprobs"][1]] == table[12].topk(2).indices.tolist()


def test_stop_ids_and_log_probs_are_returned_in_sglangs_format(hosted: Any) -> None:
    said = generate(hosted, max_new_tokens=4, temperature=0.0, top_logprobs_num=1)
    assert [best[0][1] for best in said["meta_info"]["output_top_logprobs"]] == said["output_ids"]
    stopped = generate(hosted, max_new_tokens=4, temperature=0.0, stop_token_ids=said["output_ids"][1:2])
    assert stopped["meta_info"]["finish_reason"] == {"type": "stop", "matched": said["output_ids"][1]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"temperature": 0.001}, "needs 0 (greedy) or at least 0.01"),
        ({"max_new_tokens": 5000}, "5020 tokens"),
        ({"token_ids_logprob": [5], "logprob_start_len": 0}, "only for sampled tokens"),
        ({"token_ids_logprob": [320]}, "between 0 and 319"),
        ({"logprob_start_len": 20}, "exceeds the prompt length"),
        ({"best_of": 2}, "best_of: Extra inputs"),
        ({"stop_token_ids": [13]}, "13 is not taken"),
    ],
)
def test_requests_that_vllm_would_answer_differently_are_rejected(
    hosted: Any, change: dict[str, Any], said: str
) -> None:
    for stream in (False, True):
        answer = hosted.http.post("/generate", json={**body(PROMPT, **change), "stream": stream})
        assert answer.status_code == 400 and said in answer.json()["error"]["message"]


def test_the_options_of_a_request_reach_vllm(hosted: Any) -> None:
    asked = {
        "temperature": 0.0,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 0.5,
        "stop": "ab",
    }
    more = {
        "frequency_penalty": 0.25,
        "repetition_penalty": 1.5,
        "logit_bias": {"5": 2.0},
        "sampling_seed": 2**63 + 3,
    }
    generate(
        hosted, max_new_tokens=2, rid="mine", no_stop_trim=True, skip_special_tokens=False, **asked, **more
    )
    got = vars(hosted.fake.llm.params["mine"])
    same = {name: value for name, value in {**asked, **more}.items() if got.get(name) != value}
    assert same == {"stop": "ab", "logit_bias": {"5": 2.0}, "sampling_seed": 2**63 + 3}
    assert (got["stop"], got["logit_bias"], got["seed"]) == (["ab"], {5: 2.0}, 3)
    assert got["include_stop_str_in_output"] and not got["skip_special_tokens"] and got["logprobs"] == 0


def test_aborted_and_disconnected_requests_end_and_request_ids_are_unique(
    hosted: Any,
) -> None:
    request = {**body(PROMPT, True, max_new_tokens=2000, ignore_eos=True), "rid": "long"}
    answers: list[httpx.Response] = []
    waiting = threading.Thread(target=lambda: answers.append(hosted.http.post("/generate", json=request)))
    waiting.start()
    until(lambda: "long" in hosted.fake.llm.running)
    assert httpx.post(hosted.url + "/generate", json=request, trust_env=False).status_code == 409
    assert hosted.http.post("/abort_request", json={"rid": "long"}).status_code == 200
    waiting.join()
    assert answers[0].json()["meta_info"]["finish_reason"] == {
        "type": "abort",
        "message": "aborted by request",
    }
    with httpx.stream(
        "POST", hosted.url + "/generate", json={**request, "stream": True}, trust_env=False
    ) as answer:
        next(answer.iter_lines())
    until(lambda: not hosted.fake.llm.running)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(hosted.url + "/generate", json=request, timeout=0.3, trust_env=False)
    until(lambda: not hosted.fake.llm.running)


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_pause_holds_requests_during_an_update_until_continue(hosted: Any, other_weights: Path) -> None:
    assert hosted.http.post("/pause_generation", json={"mode": "in_place"}).status_code == 200
    answers: list[dict[str, Any]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(generate(hosted, max_new_tokens=3, ignore_eos=True))
    )
    waiting.start()
    hosted.control.prepare(str(other_weights), 4)
    assert hosted.control.switch(4) == checksum_of(other_weights)
    assert not answers and hosted.http.get("/server_info").json()["paused"]
    assert hosted.http.post("/continue_generation", json={}).status_code == 200
    waiting.join()
    assert answers[0]["meta_info"]["weight_version"] == "4"


def test_a_crashed_engine_process_ends_the_server(hosted: Any) -> None:
    assert hosted.control.health()
    hosted.fake.llm.errored = True
    assert not hosted.control.health()
    assert hosted.fake.ended.wait(20.0)


def test_weights_that_differ_from_the_weights_file_are_rejected_at_the_start(model_path: Path) -> None:
    from slime.engines.requests import WeightsError

    store = HostedWeights(HostedEngine(FakeLLM(model_path, plain_model), make_params))
    with pytest.raises(WeightsError, match="does not contain the weights listed in the weights file"):
        asyncio.run(store.prove_first(str(model_path), 3, "0" * 64))
