"""The crosstalk benchmark: it finds planted words of others, and a short run with kills and deletions finds none."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from claw_lab import MODEL
from claw_lab.benchmarks.crosstalk.audit import audit_files, audit_store
from claw_lab.benchmarks.crosstalk.engine import LEARNED, RememberingEngine
from claw_lab.benchmarks.crosstalk.random_turns import parse, run
from claw_lab.benchmarks.crosstalk.words import Findings, Owner, Words
from openclaw.formats.tokenizer import Tokenizer
from openclaw.store import RolloutStore
from openclaw.types import NewTurn

ADA, BOB = Owner("ada"), Owner("bob")


@pytest.fixture
def words() -> Words:
    return Words(Tokenizer(MODEL), random.Random(0))


def stored(folder: Path, words: Words, said: str, seen: str) -> None:
    """Stores a turn of ada with these words in its messages and its token ids."""
    store = RolloutStore(folder)
    turn = NewTurn(
        completion_id="chatcmpl-1", session_id="s", person="ada", key_name="ada", policy_id="policy::ada",
        messages=[{"role": "user", "content": f"My word is {said}."}], prompt_ids=words.tokenizer.encode(f"is {seen}."),
        response_message={"role": "assistant", "content": "4"}, completion_ids=[8], completion_log_probs=[-0.5],
        version_spans=[(0, 0, 1)], sampling={"temperature": 0.6}, finish_reason="stop", transcript_digest="d",
    )  # fmt: skip
    store.turns.record(turn)
    store.close()


@pytest.mark.parametrize("planted", ["text", "ids", "forgotten", "unstored", "nothing"])
def test_a_planted_word_in_the_store_is_found(tmp_path: Path, words: Words, planted: str) -> None:
    findings, ada, bob = Findings(), words.new(ADA), words.new(BOB)
    stored(tmp_path, words, bob if planted == "text" else ada, bob if planted == "ids" else ada)
    if planted == "forgotten":
        words.forget({ADA})
    if planted == "unstored":
        words.unstored.add(ada)
    assert audit_store(tmp_path, words, findings) == 1
    assert dict(findings.counts) == ({} if planted == "nothing" else {"store: turn_body": 1}), planted


def test_words_in_logs_and_forgotten_words_in_files_are_found(tmp_path: Path, words: Words) -> None:
    findings, ada = Findings(), words.new(ADA)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "gateway.log").write_text(f"a request with {ada}")
    stored(tmp_path / "buffer", words, ada, ada)
    assert audit_files(tmp_path, words, findings) == {"words_found": 1, "left": 0}
    assert dict(findings.counts) == {"log": 1}
    words.forget({ADA})
    assert audit_files(tmp_path, words, Findings())["left"] == 1


def test_the_engine_notes_mixed_prompts_and_adapters_that_learned_from_others(
    tmp_path: Path, words: Words
) -> None:
    findings, ada, bob = Findings(), words.new(ADA), words.new(BOB)
    (tmp_path / LEARNED).write_text(json.dumps([bob]))

    async def ask() -> str:
        engine = RememberingEngine(words, findings, 1)
        await engine.start()
        engine.load("ada", str(tmp_path), 1)
        ids = words.tokenizer.encode(f"My words are {ada}, {bob}.")
        sent: dict[str, Any] = {"input_ids": ids, "rid": "chatcmpl-1", "lora_path": "ada"}
        sent["sampling_params"] = {"max_new_tokens": 9}
        async with httpx.AsyncClient() as client:
            answer = await client.post(f"{engine.url}/generate", json=sent)
        engine.stop()
        events = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        return words.tokenizer.decode(json.loads(events[-1][6:])["output_ids"])

    assert len(re.findall(bob, asyncio.run(ask()))) == 2, "the adapter says what it learned"
    assert dict(findings.counts) == {"adapter": 2, "prompt": 1}


def test_random_turns_with_kills_and_deletions_have_no_crosstalk() -> None:
    limits = ["--turns", "60", "--forget-every", "25", "--kill-every", "60", "--audit-every", "40"]
    found = run(parse([*limits, "--loaded", "2"]))
    assert (found["crosstalk"], found["left"], found["failures"]) == (0, 0, {}), found
    assert found["turns"] >= 60 and found["words_found"] > 0 and found["words_forgotten"] > 0
    assert found["events"]["gateway killed"] + found["events"]["serving worker killed"] > 0
