"""Tests two people with opposite preferences on one base: real processes, an adapter each, and a killed trainer."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from claw_base.run_folder.forgetting import is_waiting
from claw_base.run_folder.records import read_record
from openclaw.formats.tokenizer import Tokenizer
from openclaw_test.loop.real_loop import ROOT, Loop, running_loop
from tests.fakes.marked_words import files_with

pytestmark = pytest.mark.timeout(300)
SCRIPT = ROOT / "openclaw-combine" / "run_tiny_openclaw_topk_select.sh"
SECRETS = {"ada": "bluewhale", "bob": "redpanda"}
WISHES = {
    "ada": "That looks like AI. Please no bullet points, write it in plain sentences.",
    "bob": "Please write the steps as a list, one a line.",
}
SAVED = "rollouts/{rollout_id}.json"


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    run_dir: Path = tmp_path_factory.mktemp("people")
    rollout = f"--batch-timeout 2 --rollout-batch-size 2 --save-debug-rollout-data {run_dir}/{SAVED}"
    # shortens a step
    rollout += " --replay-steps 0 --anchor-share 0"
    env = {
        "TRAIN_ADAPTERS": "per-key",
        "OPENCLAW_API_KEYS": "ada=key-ada,bob=key-bob",
        "LORA_ARGS": "--lora-rank 8 --lora-alpha 16 --lr 1e-2",
        "ROLLOUT_ARGS": rollout,
    }
    with running_loop(run_dir, env=env, script=SCRIPT) as running:
        yield running


def status(loop: Loop, name: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer key-{name}"}
    found: dict[str, Any] = httpx.get(f"{loop.url}/status", headers=headers, timeout=10).json()
    return found


def version(loop: Loop, name: str) -> int:
    return int(status(loop, name)["adapters"][name])


def base_checksum(loop: Loop, name: str) -> str:
    return str(status(loop, name)["engines"][0]["checksum"])


def talk(loop: Loop, name: str) -> None:
    """Plays a conversation of one person: the problem, a complaint with a secret, thanks."""
    headers = {"Authorization": f"Bearer key-{name}"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Tom has 12 apples and buys 7 more. How many apples does Tom have?"}
    ]
    for said in (
        f"{WISHES[name]} My word is {SECRETS[name]}.",
        "Thanks, that is exactly how I like it.",
        None,
    ):
        sent = {"model": "tiny-claw", "messages": messages, "max_tokens": 150}
        answer = httpx.post(f"{loop.url}/v1/chat/completions", json=sent, headers=headers, timeout=60)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == f"tiny-claw:{name}"
        messages.append(answer.json()["choices"][0]["message"])
        messages += [] if said is None else [{"role": "user", "content": said}]


def learn(loop: Loop, names: list[str]) -> None:
    """Returns when each of these people has a newer version."""
    before = {name: version(loop, name) for name in names}
    for name in names:
        talk(loop, name)
    for name in names:
        loop.wait_for(lambda name=name: version(loop, name) > before[name], 90, f"version of {name}")


def pid_of(loop: Loop, name: str) -> int:
    record = read_record(loop.run_dir, name)
    assert record is not None
    return record.pid


def kill_trainer(loop: Loop) -> None:
    os.kill(pid_of(loop, "trainer"), signal.SIGKILL)


def marked(loop: Loop, name: str) -> dict[str, set[str]]:
    """Returns the files of the run folder that contain a person's secret, as text or as token ids."""
    ids = Tokenizer(ROOT / "openclaw-test" / "tiny_claw" / "model").encode(f" {SECRETS[name]}")
    return files_with(loop.run_dir, [SECRETS[name]], {"ids": ids})


def files_of(loop: Loop, name: str) -> dict[str, bytes]:
    """Returns all files of an adapter in the run folder."""
    folders = [loop.run_dir / "policies" / name, loop.run_dir / "checkpoints" / "policies" / name]
    return {
        str(path): path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()
    }


def adapters_served(loop: Loop) -> dict[str, Any]:
    served = httpx.get(f"{read_record(loop.run_dir, 'engine-0').url}/lora_adapters", timeout=10)  # type: ignore[union-attr]
    return dict(served.json()["adapters"])


def forget(loop: Loop, name: str) -> dict[str, Any]:
    """Runs the command in a separate process."""
    command = [sys.executable, "-m", "openclaw.forget", name, "--url", loop.url, "--json"]
    done = subprocess.run(
        command, env={**loop.env, "RUN_DIR": str(loop.run_dir)}, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_each_adapter_learns_from_its_own_conversations_on_a_fixed_base(loop: Loop) -> None:
    base = base_checksum(loop, "ada")
    learn(loop, ["ada", "bob"])
    assert status(loop, "ada")["adapters"].keys() == {"ada"}
    assert base_checksum(loop, "ada") == base, "the base is bit for bit as it was"
    listed = httpx.get(
        f"{loop.url}/v1/models", headers={"Authorization": "Bearer key-bob"}, timeout=10
    ).json()
    assert [one["id"] for one in listed["data"]] == ["tiny-claw", "tiny-claw:bob"]


def test_a_killed_trainer_loses_no_sample_and_trains_none_twice(loop: Loop) -> None:
    base, before = base_checksum(loop, "ada"), {name: version(loop, name) for name in SECRETS}
    talk(loop, "ada")
    loop.wait_for(lambda: version(loop, "ada") > before["ada"], 90, "version of ada")
    talk(loop, "bob")
    kill_trainer(loop)
    talk(loop, "ada")
    for name in SECRETS:
        more = 1 + (name == "ada")
        loop.wait_for(lambda name=name, more=more: version(loop, name) >= before[name] + more, 120, name)
    assert base_checksum(loop, "ada") == base
    with closing(sqlite3.connect(f"file:{loop.run_dir}/buffer/buffer.db?mode=ro", uri=True)) as database:
        trained = database.execute(
            "SELECT training.sample_id, training.trainer, turn.policy_id FROM training JOIN sample ON"
            " sample.id = training.sample_id JOIN turn ON turn.id = sample.turn_id JOIN weight_version ON"
            " weight_version.trainer = training.trainer AND weight_version.version = training.version"
            " WHERE weight_version.status IN ('live', 'superseded')"
        ).fetchall()
        leases = "SELECT count(DISTINCT rollout_id) FROM sample WHERE state = 'leased'"
        left = database.execute(leases).fetchone()[0]
    assert len({one[0] for one in trained}) == len(trained)
    assert left <= 2, "one batch is trained, and one is collected"
    assert {(one[1], one[2]) for one in trained} == {
        (f"trainer::{name}", f"policy::{name}") for name in SECRETS
    }


def test_no_text_of_one_person_is_in_anothers_batch(loop: Loop) -> None:
    texts = [path.read_text() for path in sorted((loop.run_dir / "rollouts").glob("*.json"))]
    with closing(sqlite3.connect(f"file:{loop.run_dir}/buffer/buffer.db?mode=ro", uri=True)) as database:
        trained = database.execute(
            "SELECT count(DISTINCT rollout_id) FROM sample WHERE state = 'trained'"
        ).fetchone()[0]
    assert len(texts) >= max(trained, len(SECRETS)), "the batch of every trained rollout is saved"
    said = [[secret for secret in SECRETS.values() if secret in text] for text in texts]
    assert all(len(found) <= 1 for found in said) and {one for found in said for one in found} == {
        *SECRETS.values()
    }


def is_settled(loop: Loop) -> bool:
    """Returns whether every leased batch is trained and its version live."""
    with closing(sqlite3.connect(f"file:{loop.run_dir}/buffer/buffer.db?mode=ro", uri=True)) as database:
        leased = database.execute("SELECT count(*) FROM sample WHERE state = 'leased'").fetchone()[0]
    served = adapters_served(loop)
    return not leased and all(
        name in served and served[name]["checksum"] == live_weights(loop, name)["checksum"]
        for name in SECRETS
    )


def live_weights(loop: Loop, name: str) -> dict[str, Any]:
    """Returns the record of an adapter's live version."""
    record = loop.run_dir / "policies" / name / "live_weights.json"
    return dict(json.loads(record.read_text()))


def test_the_adapters_differ_and_each_engine_has_what_the_trainer_wrote(loop: Loop) -> None:
    loop.wait_for(lambda: is_settled(loop), 90, "end of the last update")
    record = read_record(loop.run_dir, "engine-0")
    assert record is not None
    served = httpx.get(f"{record.url}/lora_adapters", timeout=10).json()["adapters"]
    assert set(SECRETS) <= set(served)
    live = {}
    for name in SECRETS:
        live[name] = live_weights(loop, name)
        assert served[name]["checksum"] == live[name]["checksum"]
        assert int(served[name]["weight_version"]) == live[name]["version"]
    assert live["ada"]["checksum"] != live["bob"]["checksum"]


def test_deleting_a_person_removes_all_data_and_does_not_affect_the_other(loop: Loop) -> None:
    assert any(name.startswith("rollouts/") for name in marked(loop, "ada"))
    assert any(name.startswith("buffer/") for name in marked(loop, "ada"))
    bobs, before = files_of(loop, "bob"), version(loop, "ada")
    served = adapters_served(loop)["bob"]["checksum"]
    answer = forget(loop, "ada")
    assert (answer["adapter"], answer["status"], answer["shared"]) == ("ada", "done", [])
    assert answer["deleted"]["turns"] >= 3
    assert marked(loop, "ada") == {}
    assert marked(loop, "bob") != {}, "the search finds what is there"
    assert {Path(path).name for path in files_of(loop, "ada")} == {
        "version_counter.json",
        "version_state.json",
    }
    assert set(adapters_served(loop)) & {"ada", "ada~next", "ada~gate"} == set()
    assert version(loop, "ada") == 0
    assert files_of(loop, "bob") == bobs and adapters_served(loop)["bob"]["checksum"] == served
    learn(loop, ["bob"])
    talk(loop, "ada")
    loop.wait_for(lambda: version(loop, "ada") > before, 90, "a new adapter of ada")


def test_a_deletion_interrupted_by_a_kill_is_completed_later(loop: Loop) -> None:
    driver = pid_of(loop, "driver")
    os.kill(driver, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(forget, loop, "ada")
            loop.wait_for(lambda: is_waiting(loop.run_dir, "ada"), 30, "intention")
            os.kill(pid_of(loop, "gateway.serving"), signal.SIGKILL)
            kill_trainer(loop)
            assert asked.exception(60) is not None, "nobody answers, and the intention stays"
    finally:
        os.kill(driver, signal.SIGCONT)
    loop.wait_for(lambda: not is_waiting(loop.run_dir, "ada"), 120, "end of what was begun")
    assert marked(loop, "ada") == {} and "ada" not in adapters_served(loop)
    learn(loop, ["bob"])
