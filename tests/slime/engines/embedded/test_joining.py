"""Tests that a generation survives a broken connection: the same request, sent again, gets it from the beginning."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from tests.fakes.engine_process import Server, event_lines

PROMPT = list(range(10, 40))


def body(**more: object) -> dict[str, Any]:
    sampling = {"max_new_tokens": 300, "ignore_eos": True, "temperature": 1.0}
    asked = {"input_ids": PROMPT, "sampling_params": sampling, "return_logprob": True, "stream": True}
    return {**asked, **more}


def beginning(url: str, **more: object) -> list[int]:
    """Returns the first ids of a stream whose connection then breaks."""
    with httpx.stream("POST", f"{url}/generate", json=body(**more), timeout=60) as answer:
        for line in event_lines(answer):
            if line.startswith("data: {"):
                ids = json.loads(line[6:])["output_ids"]
                if len(ids) > 3:
                    return [int(one) for one in ids]
    raise AssertionError("no stream")


def whole(url: str, **more: object) -> dict[str, Any]:
    answer: dict[str, Any] = httpx.post(
        f"{url}/generate", json=body(**more) | {"stream": False}, timeout=60
    ).json()
    return answer


def test_a_repeated_request_joins_the_generation_of_a_broken_connection(server: Server) -> None:
    seen = beginning(server.url, rid="first", join_key="k1")
    joined = whole(server.url, rid="second", join_key="k1", join=True)
    assert joined["output_ids"][: len(seen)] == seen and joined["meta_info"]["id"] == "first"
    assert len(joined["output_ids"]) == len(joined["meta_info"]["output_token_logprobs"]) == 300


def test_a_different_request_joins_no_generation(server: Server) -> None:
    beginning(server.url, rid="third", join_key="k2")
    assert whole(server.url, rid="fourth", join_key="k2")["meta_info"]["id"] == "fourth"
    beginning(server.url, rid="fifth", join_key="k3")
    other = whole(server.url, rid="sixth", join_key="k3", join=True, input_ids=PROMPT[:-1])
    assert other["meta_info"]["id"] == "sixth"


def test_an_aborted_generation_is_not_joined(server: Server) -> None:
    beginning(server.url, rid="seventh", join_key="k4")
    httpx.post(f"{server.url}/abort_request", json={"rid": "seventh"})
    time.sleep(0.3)
    assert whole(server.url, rid="eighth", join_key="k4", join=True)["meta_info"]["id"] == "eighth"


def test_without_a_key_a_broken_connection_ends_its_generation(server: Server) -> None:
    beginning(server.url, rid="ninth")
    deadline = time.monotonic() + 20
    while httpx.get(f"{server.url}/server_info").json()["decoding"] and time.monotonic() < deadline:
        time.sleep(0.05)
    assert httpx.get(f"{server.url}/server_info").json()["decoding"] == 0
