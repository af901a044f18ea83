"""Sends weights by broadcast (gloo) to a real SGLang, also if one side exits during a transfer.

    python -m claw_lab.long.sglang_broadcast ENGINE_URL MODEL_FOLDER OTHER_FOLDER

Prints one line for each check; exit status 1 if one fails.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from claw_lab.long.engine_protocol import HTTP, MODEL, OTHER, URL, generate, prompt, reference, run, worst
from slime.engines.client import EngineControl, EngineControlError
from slime.engines.sglang import broadcast
from slime.engines.sglang.broadcast import Broadcast
from slime.engines.sglang.routes import SGLangRoutes
from slime.engines.sglang.transport import Disk
from tests.fakes.sender_process import SenderProcess

BUCKET = 500_000  # bytes: several buckets of the tiny model
TOKENS = 150  # of an answer that is being sampled
SENDER = SenderProcess()
VERSIONS = iter(range(6, 100))  # engine_protocol.py has used the versions below
FOLDERS: dict[int, Path] = {}  # folders of the versions, in place of a run's folder


def client(timeout: float = 60.0) -> EngineControl:
    transport = Broadcast(URL, SENDER, BUCKET, timeout, lambda version: FOLDERS.get(version, Path("/gone")))
    return EngineControl(URL, "sglang", prepare_timeout=60.0, routes=SGLangRoutes(transport))


def update(control: EngineControl, folder: str) -> tuple[int, float]:
    """Publishes a folder as the next version; returns its number and the seconds including verification."""
    number = next(VERSIONS)
    FOLDERS[number] = Path(folder)
    control.info()
    checksum = control.prepare(folder, number)
    began = time.monotonic()
    assert control.switch(number) == checksum
    seconds = time.monotonic() - began
    info = control.info()
    assert (info.version, info.checksum) == (number, checksum)
    return number, seconds


def answers_while(action: Callable[[], Any]) -> tuple[Any, list[dict[str, Any]]]:
    """Returns the result of the action, and four answers that were sampled during it, all of them complete."""
    answers: list[dict[str, Any]] = []

    def one(seed: int) -> None:
        answers.append(generate(prompt(20, seed), max_new_tokens=TOKENS, temperature=1.0, ignore_eos=True))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    result = action()
    for thread in threads:
        thread.join()
    assert len(answers) == 4 and all(len(answer["output_ids"]) == TOKENS for answer in answers)
    return result, answers


def gap_to(folder: str) -> float:
    """Returns the largest difference of an answer's log-probs from those of the folder by transformers."""
    answer = generate(prompt(20), max_new_tokens=30, temperature=1.0, ignore_eos=True)
    log_probs = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
    gap = worst(log_probs, reference(folder, prompt(20) + answer["output_ids"], 30))
    assert gap < 1e-4
    return gap


def weights_come_by_broadcast_while_answers_are_under_way() -> str:
    control = client()
    update(control, OTHER)
    (number, seconds), answers = answers_while(lambda: update(control, MODEL))
    spans = [[span["version"] for span in answer["meta_info"]["weight_versions"]] for answer in answers]
    assert all(span[-1] == str(number) and not any("loading" in name for name in span) for span in spans)
    named = HTTP.get("/model_info").json()
    both = sum(len(span) == 2 for span in spans)
    return (
        f"{seconds:.2f} s with proof; {both} of 4 answers have both versions; difference {gap_to(MODEL):.1e}; the engine "
        f"names {Path(named['model_path']).name}, version {named['weight_version']}"
    )


def a_second_broadcast_needs_no_start() -> str:
    control = client()
    took = [update(control, folder)[1] for folder in (OTHER, MODEL, OTHER)]
    assert SENDER.started == 1
    return f"{', '.join(f'{seconds:.2f}' for seconds in took)} s with proof; difference {gap_to(OTHER):.1e}"


def reading_from_disk_for_comparison() -> str:
    control = EngineControl(URL, "sglang", prepare_timeout=60.0)
    took = [update(control, folder)[1] for folder in (MODEL, OTHER)]
    return f"{', '.join(f'{seconds:.2f}' for seconds in took)} s with proof"


class CutShort:
    """The sender exits after `buckets` buckets."""

    def __init__(self, buckets: int) -> None:
        self.left, self.send = buckets, SENDER.send

    def __enter__(self) -> None:
        def send(*words: Any) -> Future[None]:
            self.left -= 1
            if self.left < 0:
                SENDER.process.kill()
            answer: Future[None] = self.send(*words)
            return answer

        SENDER.send = send

    def __exit__(self, *error: object) -> None:
        SENDER.send = self.send


def a_sender_that_is_killed_in_the_middle_costs_a_reading_from_disk() -> str:
    control = client()

    def cut_update() -> float:
        with CutShort(2):
            return update(control, MODEL)[1]

    seconds, _ = answers_while(cut_update)
    named = HTTP.get("/model_info").json()
    assert named["model_path"] == MODEL
    return f"{seconds:.2f} s with proof; difference {gap_to(MODEL):.1e}"


class Blind(Disk):
    def load(self, *words: Any) -> None:
        raise EngineControlError("the folder is not there", 400)


def an_engine_that_does_not_see_the_folder_waits_with_half_of_it_and_is_healed() -> str:
    control, answered = client(), []
    broadcast.Disk = Blind  # type: ignore[misc]
    try:
        with CutShort(2):
            update(control, OTHER)
        raise AssertionError("half of a version was proven")
    except EngineControlError as error:
        message = str(error)
    finally:
        broadcast.Disk = Disk  # type: ignore[misc]
    assert "nor read from disk" in message and control.info().version == -1

    def ask() -> None:
        answered.append(generate(prompt(20), max_new_tokens=5))

    waiting = threading.Thread(target=ask)
    waiting.start()
    waiting.join(3.0)
    assert waiting.is_alive(), "an engine with weights of two versions answered"
    number, seconds = update(client(), OTHER)  # as a new driver does
    waiting.join(30.0)
    assert answered[0]["meta_info"]["weight_version"] == str(number)
    return f"no answer in 3 s; healed in {seconds:.2f} s; difference {gap_to(OTHER):.1e}"


def a_group_that_nobody_completes_is_given_up() -> str:
    """Checks that the engine leaves a group whose rank 0 never joins."""
    join, SENDER.join = SENDER.join, lambda *words: Future()
    control = client(timeout=3.0)
    try:
        _, seconds = update(control, MODEL)
    finally:
        SENDER.join = join
    assert HTTP.get("/model_info").json()["model_path"] == MODEL
    return f"read from disk after {seconds:.2f} s of which 3 were the limit; difference {gap_to(MODEL):.1e}"


CHECKS = (
    weights_come_by_broadcast_while_answers_are_under_way,
    a_second_broadcast_needs_no_start,
    reading_from_disk_for_comparison,
    a_sender_that_is_killed_in_the_middle_costs_a_reading_from_disk,
    an_engine_that_does_not_see_the_folder_waits_with_half_of_it_and_is_healed,
    a_group_that_nobody_completes_is_given_up,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    status = run(CHECKS)
    SENDER.close()
    sys.exit(status)
