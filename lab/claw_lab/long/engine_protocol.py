"""Checks the functions of a real engine that gateway and trainer need, and a conversation through the gateway.

    python -m claw_lab.long.engine_protocol ENGINE_URL MODEL_FOLDER OTHER_FOLDER [sglang|vllm]

Prints one line for each check; exit status 1 if one fails.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from slime.engines.client import EngineControl, EngineControlError

URL, MODEL, OTHER = sys.argv[1:4]
BACKEND = sys.argv[4] if len(sys.argv) > 4 else "sglang"
HTTP = httpx.Client(base_url=URL, timeout=300.0, trust_env=False)


def prompt(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(10, 300), k=length)


def body(ids: list[int], **sampling: Any) -> dict[str, Any]:
    return {"input_ids": ids, "sampling_params": sampling, "return_logprob": True}


def generate(ids: list[int], more: dict[str, Any] | None = None, **sampling: Any) -> dict[str, Any]:
    answer = HTTP.post("/generate", json={**body(ids, **sampling), **(more or {})})
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()
    return result


def event_lines(answer: httpx.Response) -> Iterator[str]:
    """Yields lines; httpx's `iter_lines` would also split at Unicode line ends in random text."""
    rest = ""
    for piece in answer.iter_text():
        *whole, rest = (rest + piece).split("\n")
        yield from whole


def stream(ids: list[int], **sampling: Any) -> Iterator[dict[str, Any]]:
    with HTTP.stream("POST", "/generate", json={**body(ids, **sampling), "stream": True}) as answer:
        for line in event_lines(answer):
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


def reference(folder: str, ids: list[int], count: int, temperature: float = 1.0) -> list[float]:
    """Returns the log-probs of the last `count` ids by transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False)
    with torch.no_grad():
        table = torch.log_softmax(model(torch.tensor([ids])).logits[0] / temperature, dim=-1)
    return [table[place - 1, ids[place]].item() for place in range(len(ids) - count, len(ids))]


def worst(log_probs: list[float], expected: list[float]) -> float:
    assert len(log_probs) == len(expected)
    return max(abs(a - b) for a, b in zip(log_probs, expected, strict=True))


def sampled_log_probs_are_the_models() -> str:
    answer = generate(prompt(20), max_new_tokens=30, temperature=1.0, ignore_eos=True)
    entries = answer["meta_info"]["output_token_logprobs"]
    assert [entry[1] for entry in entries] == answer["output_ids"] and len(entries) == 30
    gap = worst([entry[0] for entry in entries], reference(MODEL, prompt(20) + answer["output_ids"], 30))
    assert gap < 1e-4
    return f"largest difference {gap:.1e}"


def log_probs_are_of_the_temperature_before_truncation() -> str:
    sampling = {"temperature": 0.6, "top_p": 0.8, "top_k": 20}
    answer = generate(prompt(20, 9), max_new_tokens=30, ignore_eos=True, **sampling)
    log_probs = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
    gap = worst(log_probs, reference(MODEL, prompt(20, 9) + answer["output_ids"], 30, 0.6))
    assert gap < 1e-4
    return f"largest difference {gap:.1e}"


def prompt_scoring_starts_where_it_was_asked() -> str:
    ids, start = prompt(60, 1), 40
    more = {"logprob_start_len": start, "top_logprobs_num": 2}
    meta = generate(ids, more, max_new_tokens=1)["meta_info"]
    entries = meta["input_token_logprobs"]
    assert entries[0][0] is None and [entry[1] for entry in entries] == ids[start:]
    gap = worst([entry[0] for entry in entries[1:]], reference(MODEL, ids, len(ids) - start - 1))
    assert gap < 1e-4 and len(meta["input_top_logprobs"]) == len(entries)
    return f"largest difference {gap:.1e}"


def a_stream_is_cumulative_and_ends_with_its_spans() -> str:
    chunks = list(stream(prompt(10, 2), max_new_tokens=40, temperature=1.0, ignore_eos=True))
    for before, after in pairwise(chunks):
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
    last = chunks[-1]["meta_info"]
    assert last["finish_reason"]["type"] == "length" and last["weight_versions"][-1]["end"] == 40
    assert all(chunk["meta_info"]["finish_reason"] is None for chunk in chunks[:-1])
    return f"{len(chunks)} chunks"


def a_stop_id_ends_the_answer_and_is_kept() -> str:
    ids = prompt(12, 3)
    answer_ids = generate(ids, max_new_tokens=20, temperature=0.0, ignore_eos=True)["output_ids"]
    answer = generate(ids, max_new_tokens=20, temperature=0.0, stop_token_ids=[answer_ids[2]])
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": answer_ids[2]}
    assert answer["output_ids"] == answer_ids[: answer_ids.index(answer_ids[2]) + 1]
    return f"after {len(answer['output_ids'])} tokens"


def an_aborted_request_ends() -> str:
    ended: list[float] = []

    def one() -> None:
        HTTP.post("/generate", json={**body(prompt(10), max_new_tokens=1500, ignore_eos=True), "rid": "long"})
        ended.append(time.monotonic())

    thread = threading.Thread(target=one)
    thread.start()
    time.sleep(2.0)
    aborted_at = time.monotonic()
    assert HTTP.post("/abort_request", json={"rid": "long"}).status_code == 200
    thread.join(30.0)
    assert ended and ended[0] - aborted_at < 20.0
    return f"{ended[0] - aborted_at:.2f} s later"


def an_update_under_way_of_answers_is_proven() -> str:
    control, answers = EngineControl(URL, BACKEND), []
    assert control.info().checksum

    def one(seed: int) -> None:
        answers.append(generate(prompt(20, seed), max_new_tokens=500, temperature=1.0, ignore_eos=True))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    checksum = control.prepare(OTHER, 4)
    began = time.monotonic()
    assert control.switch(4) == checksum
    seconds = time.monotonic() - began
    for thread in threads:
        thread.join()
    assert (control.info().version, control.info().checksum) == (4, checksum)
    assert all(len(answer["output_ids"]) == 500 for answer in answers)
    both = sum(len(answer["meta_info"]["weight_versions"]) == 2 for answer in answers)
    after = generate(prompt(20), max_new_tokens=30, temperature=1.0, ignore_eos=True)
    log_probs = [entry[0] for entry in after["meta_info"]["output_token_logprobs"]]
    gap = worst(log_probs, reference(OTHER, prompt(20) + after["output_ids"], 30))
    assert gap < 1e-4
    return f"{seconds:.2f} s with proof; {both} of 4 answers have both versions; difference {gap:.1e}"


def a_stream_goes_on_through_an_update() -> str:
    """Switches back to the first weights during an answer. A token right after the switch may be in the chunk of
    either version; the spans decide."""
    control, ids, chunks = EngineControl(URL, BACKEND), prompt(20, 5), 0
    before = control.info().version
    last: dict[str, Any] = {}
    longest, came = 0.0, time.monotonic()
    for chunk in stream(ids, max_new_tokens=300, temperature=1.0, ignore_eos=True):
        longest, came = max(longest, time.monotonic() - came), time.monotonic()
        chunks, last = chunks + 1, chunk
        if chunks == 3:
            control.prepare(MODEL, before + 1)
            updating = threading.Thread(target=control.switch, args=(before + 1,))
            updating.start()
    updating.join()
    spans = last["meta_info"]["weight_versions"]
    assert [int(span["version"]) for span in spans] == [before, before + 1] and spans[-1]["end"] == 300
    whole, first = ids + last["output_ids"], spans[0]["end"]
    expected = reference(OTHER, whole, 300)[:first] + reference(MODEL, whole, 300)[first:]
    gap = worst([entry[0] for entry in last["meta_info"]["output_token_logprobs"]], expected)
    assert gap < 1e-4
    return f"after {first} of 300 tokens, longest wait {longest:.2f} s, largest difference {gap:.1e}"


def bad_weights_are_refused_and_the_version_stays() -> str:
    control = EngineControl(URL, BACKEND)
    version = control.info().version
    try:
        control.prepare(str(Path(MODEL) / "no_such_folder"), 9)
    except EngineControlError as error:
        assert control.info().version == version
        return str(error)[-60:]
    raise AssertionError("a folder that is not there was prepared")


def a_conversation_through_the_gateway() -> str:
    command = [sys.executable, "-m", "openclaw.server", "--engine-url", URL, "--model-path", MODEL]
    command += ["--port", "21931", "--allow-no-key"]
    gateway = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and gateway.poll() is None:
            try:
                if httpx.get("http://127.0.0.1:21931/healthz", trust_env=False).status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.3)
        assert gateway.poll() is None, "the gateway has ended"
        replies = []
        messages: list[dict[str, str]] = []
        for text in ("hello", "and again"):
            messages.append({"role": "user", "content": text})
            request: dict[str, Any] = {"messages": messages, "max_tokens": 16, "logprobs": True}
            url = "http://127.0.0.1:21931/v1/chat/completions"
            answer = httpx.post(url, json=request, timeout=120.0, trust_env=False)
            assert answer.status_code == 200, answer.text
            choice = answer.json()["choices"][0]
            messages.append({"role": "assistant", "content": choice["message"]["content"] or ""})
            replies.append(answer.json()["usage"]["completion_tokens"])
        assert all(replies)
        return f"tokens of the two answers: {replies}"
    finally:
        gateway.terminate()
        gateway.wait()


CHECKS = (
    sampled_log_probs_are_the_models,
    log_probs_are_of_the_temperature_before_truncation,
    prompt_scoring_starts_where_it_was_asked,
    a_stream_is_cumulative_and_ends_with_its_spans,
    a_stop_id_ends_the_answer_and_is_kept,
    an_aborted_request_ends,
    a_conversation_through_the_gateway,
    bad_weights_are_refused_and_the_version_stays,
    an_update_under_way_of_answers_is_proven,
    a_stream_goes_on_through_an_update,
)


def run(checks: Sequence[Callable[[], str]]) -> int:
    """Prints one line for each check; returns the exit status."""
    failed = 0
    for check in checks:
        name = check.__name__.replace("_", " ")
        try:
            print(f"passed  {name}: {check()}", flush=True)
        except Exception as error:  # the next check runs after any failure
            failed += 1
            print(f"FAILED  {name}: {error!r}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run(CHECKS))
