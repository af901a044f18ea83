"""Tests `kill -9` of any process while people talk: no received answer is lost, and the loop continues by itself."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from openai import OpenAI, OpenAIError

from claw_base.ports import free_port
from claw_lab.benchmarks.faults import fault_table, faults, fuzzing, many_kills
from claw_lab.benchmarks.faults.availability_probe import AvailabilityProbe
from claw_lab.benchmarks.faults.kills import kill_batches, summary
from claw_lab.benchmarks.faults.scenario_kinds import start_again
from openclaw_test.loop.real_loop import Loop

pytestmark = pytest.mark.timeout(300)
UNTOUCHED = ("trainer", "judge", "driver")


class Talkers:
    """People who talk continuously; stores every completely received answer."""

    def __init__(self, loop: Loop, people: int = 4) -> None:
        self.loop = loop
        self.seen: list[str] = []
        self.errors: list[str] = []
        self.ends: list[float] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._talk, args=(n,), daemon=True) for n in range(people)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(90)

    def _talk(self, person: int) -> None:
        client = OpenAI(base_url=f"{self.loop.url}/v1", api_key="any", max_retries=0, timeout=60)
        while not self._stop.is_set():
            scope = {"X-Session-Id": uuid.uuid4().hex}
            messages = [
                {"role": "user", "content": f"Mia has {10 + person} shells and finds 5 more. How many now?"}
            ]
            for wish in ("Too much formatting, write it in normal sentences.", "Thank you, perfect!", None):
                try:
                    text = self._answer(client, messages, scope)
                except (OpenAIError, httpx.HTTPError, EOFError) as error:
                    self.errors.append(f"{type(error).__name__}: {error}")
                    time.sleep(0.3)
                    break
                messages += [{"role": "assistant", "content": text}, {"role": "user", "content": wish or ""}]

    def _answer(self, client: OpenAI, messages: list[dict[str, str]], scope: dict[str, str]) -> str:
        text, completion_id, ended = "", "", False
        for chunk in client.chat.completions.create(  # type: ignore[call-overload]
            model="tiny-claw", messages=messages, stream=True, max_tokens=120, extra_headers=scope
        ):
            completion_id = chunk.id
            text += chunk.choices[0].delta.content or ""
            ended = ended or chunk.choices[0].finish_reason is not None
        if not ended:
            raise EOFError("the stream broke off")
        self.seen.append(completion_id)
        self.ends.append(time.monotonic())
        return text


@contextmanager
def talking(loop: Loop) -> Iterator[Talkers]:
    talkers = Talkers(loop)
    talkers.start()
    try:
        yield talkers
    finally:
        talkers.stop()


@pytest.mark.parametrize("role", ["judge", "trainer", pytest.param("door", id="supervisor"), "driver"])
def test_a_killed_process_restarts_and_no_received_answer_is_lost(loop: Loop, role: str) -> None:
    with talking(loop) as people, AvailabilityProbe(loop.port) as probe:
        loop.wait_for(lambda: len(people.seen) >= 4, 60, "first answers")
        version = loop.status()["weight_version"]
        dead = loop.kill(role)
        killed_at = time.monotonic()
        loop.wait_for(lambda: any(end > killed_at + 0.5 for end in people.ends), 60, "answers after the kill")
        loop.wait_for(lambda: [p for p in loop.pids(role) if p != dead], 60, f"a new {role}")
        loop.wait_for(lambda: loop.status()["weight_version"] > version, 120, "training after the kill")
    if sys.platform.startswith("linux"):
        assert probe.refused == [] and probe.answered
    if role in UNTOUCHED:
        assert people.errors == []
    stored = [row["completion_id"] for row in loop.turns("completion_id")]
    assert set(people.seen) <= set(stored)
    assert len(stored) == len(set(stored))


def test_no_sample_is_trained_twice(loop: Loop) -> None:
    status = loop.status()
    assert status["samples"].get("trained", 0) > 0
    assert sum(status["samples"].values()) <= status["turns"]["judged"]


def test_a_second_start_in_one_folder_is_rejected_and_the_first_run_continues(loop: Loop) -> None:
    for port in (loop.port, free_port()):
        second = start_again(loop, port)
        assert second["status"] == 2 and second["undisturbed"], second
        assert str(loop.run_dir) in second["refusal"], second


def test_a_short_fault_benchmark_fills_its_table_without_losses(loop: Loop, tmp_path: Path) -> None:
    _, counts = asyncio.run(faults.run(loop, [("gateway", None), ("engine", None)], 0, 0, tmp_path))
    assert counts["answers_seen"] > 0 and not faults.wrong(counts)
    killed = json.loads((tmp_path / "faults-00.json").read_text())["roles"]
    assert {role: own["refused"] for role, own in killed.items()} == {"gateway": 0, "engine": 0}
    asyncio.run(many_kills.piece(loop, tmp_path, kills=4, minutes=1.0, seed=1))
    kills = summary(kill_batches(tmp_path)) | many_kills.compare(loop, tmp_path)
    assert kills["refused"] == kills["lost"] == kills["doubled"] == kills["trained_twice"] == 0
    fault_table.note(tmp_path, "many_kills", kills)
    odd = fuzzing.resume(tmp_path, requests=400, minutes=1.0)
    assert odd["failed"] == 0 and not fault_table.stays_behind(odd["growth"])
    table = fault_table.table(tmp_path)
    for what in ("gateway killed", "engine killed", "kills (", "fuzzed requests"):
        assert what in table
