"""Tests weight updates: two phases, no dropped request, rejection of bad weights, the checksum of the live
weights."""

from __future__ import annotations

import random
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.engines.client import EngineControl, EngineControlError
from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.socket_supervisor import SPARE_NEEDS_BYTES, has_room
from slime.weights.checksum import weights_checksum


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(4, 300), k=length)


def stored_checksum(folder) -> str:
    return weights_checksum(load_file(folder / "model.safetensors"))


@pytest.fixture
def control(server, model_path):
    """Ensures that version 0 is live before and after each test."""
    with EngineControl(server.url, "embedded") as control:
        yield control
        control.prepare(str(model_path), 0)
        control.switch(0)


def test_a_switch_replaces_all_weights(server, control, other_weights, other_reference, sampled_log_probs):
    checksum = control.prepare(str(other_weights), 4)
    assert control.info().version == 0
    assert control.switch(4) == checksum == stored_checksum(other_weights)
    info = control.info()
    assert (info.version, info.checksum) == (4, checksum)
    answer = server.generate(prompt_of(20), max_new_tokens=30, temperature=1.0, ignore_eos=True)
    expected = sampled_log_probs(other_reference, prompt_of(20), answer["output_ids"])
    assert [e[0] for e in answer["meta_info"]["output_token_logprobs"]] == pytest.approx(expected, abs=1e-5)
    assert answer["meta_info"]["weight_version"] == "4"
    assert answer["meta_info"]["weight_versions"] == [{"version": "4", "start": 0, "end": 30}]


def test_streams_continue_through_updates_and_report_each_tokens_version(
    server, control, model_path, other_weights, reference, sampled_log_probs
):
    def long_answer(seed: int) -> dict:
        prompt = prompt_of(10 + seed, seed)
        return list(server.stream(prompt, max_new_tokens=600, temperature=1.0, ignore_eos=True))[-1]

    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(long_answer, seed) for seed in range(8)]
        for version, folder in ((1, other_weights), (2, model_path), (3, other_weights)):
            control.prepare(str(folder), version)
            control.switch(version)
        answers = [future.result() for future in running]
    for seed, answer in enumerate(answers):
        meta = answer["meta_info"]
        assert meta["finish_reason"]["type"] == "length" and len(answer["output_ids"]) == 600
        spans = [(int(span["version"]), span["start"], span["end"]) for span in meta["weight_versions"]]
        assert [span[1] for span in spans] == [0] + [span[2] for span in spans[:-1]]
        assert spans[-1][2] == 600
        assert [span[0] for span in spans] == sorted({span[0] for span in spans})
        version, _, end = spans[0]
        if version == 0:
            expected = sampled_log_probs(reference, prompt_of(10 + seed, seed), answer["output_ids"][:end])
            assert [e[0] for e in meta["output_token_logprobs"][:end]] == pytest.approx(expected, abs=2e-5)
    assert any(len(answer["meta_info"]["weight_versions"]) > 1 for answer in answers)


def test_prepare_and_switch_may_be_repeated(control, other_weights):
    first = control.prepare(str(other_weights), 7)
    assert control.prepare(str(other_weights), 7) == first
    assert control.switch(7) == control.switch(7) == first
    assert control.prepare(str(other_weights), 7) == first


def test_update_from_disk_is_prepare_and_switch(server, control, other_weights):
    answer = server.post("/update_weights_from_disk", {"model_path": str(other_weights), "weight_version": 9})
    assert answer.json()["success"] and answer.json()["checksum"] == stored_checksum(other_weights)
    assert control.info().version == 9


def test_a_version_that_is_not_prepared_cannot_go_live(control, other_weights):
    control.prepare(str(other_weights), 5)
    control.discard()
    with pytest.raises(EngineControlError, match="not prepared") as refusal:
        control.switch(5)
    assert refusal.value.status == 400
    assert control.info().version == 0


def spoil(folder, change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


NORM = "model.layers.1.input_layernorm.weight"
EMBED = "model.embed_tokens.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), "lacks 1 tensors"),
        (lambda t: t.update(extra=torch.ones(2)), "unexpected tensor extra"),
        (lambda t: t.update({NORM: torch.ones(5)}), "shape"),
        (lambda t: t.update({NORM: t[NORM].to(torch.bfloat16)}), "bfloat16"),
        (lambda t: t[NORM].fill_(float("nan")), "finite"),
        (lambda t: t.update({"lm_head.weight": t[EMBED] + 1}), "tied"),
    ],
)
def test_invalid_weights_are_rejected_and_the_live_ones_stay(
    server, control, other_weights, tmp_path, change, message
):
    folder = tmp_path / "bad"
    shutil.copytree(other_weights, folder)
    spoil(folder, change)
    before = control.info()
    said = server.generate(prompt_of(10), max_new_tokens=10, temperature=0)["output_ids"]
    with pytest.raises(EngineControlError, match=message):
        control.prepare(str(folder), 8)
    with pytest.raises(EngineControlError, match="not prepared"):
        control.switch(8)
    assert control.info() == before
    assert server.generate(prompt_of(10), max_new_tokens=10, temperature=0)["output_ids"] == said


def test_a_folder_or_file_without_a_model_is_rejected(control, tmp_path):
    with pytest.raises(EngineControlError, match="not a folder"):
        control.prepare(str(tmp_path / "nowhere"), 8)
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(EngineControlError, match="cannot read"):
        control.prepare(str(tmp_path), 8)


def test_an_equal_copy_of_a_tied_head_is_accepted(control, other_weights, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(other_weights, folder)
    spoil(folder, lambda t: t.update({"lm_head.weight": t[EMBED].clone()}))
    assert control.prepare(str(folder), 6) == stored_checksum(other_weights)


def test_a_version_must_be_a_whole_number(server, other_weights):
    answer = server.post("/prepare_weights", {"model_path": str(other_weights), "weight_version": "new"})
    assert answer.status_code == 400
    assert answer.json()["success"] is False and "weight_version" in answer.json()["message"]


def test_a_restarted_engine_serves_the_weights_that_were_live(restarted, other_weights):
    assert restarted.ready["version"] == 12
    with EngineControl(restarted.url) as control:
        assert control.health()
        assert control.info().checksum == stored_checksum(other_weights)


def test_an_unreachable_engine_raises_an_error_without_status():
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with EngineControl(f"http://127.0.0.1:{reserved.getsockname()[1]}", timeout=2.0) as control:
            assert not control.health()
            with pytest.raises(EngineControlError) as lost:
                control.info()
    assert lost.value.status is None


def test_an_unknown_backend_cannot_be_driven():
    with pytest.raises(ValueError, match="known: embedded"):
        EngineControl("http://127.0.0.1:1", "abacus")


def test_prepared_weights_answer_without_going_live(server, control, model_path, other_weights):
    prompts = [prompt_of(12, seed) for seed in range(3)]
    live = [server.generate(prompt, max_new_tokens=8, temperature=0.0)["output_ids"] for prompt in prompts]
    tried = control.try_weights(str(other_weights), 4, prompts, 8)
    assert control.info().version == 0 and [answer["ids"] for answer in tried] != live
    again = control.try_weights(str(model_path), 0, prompts, 8)
    assert [answer["ids"] for answer in again] == live, "the live version can be asked too"
    assert all(len(answer["log_probs"]) == len(answer["ids"]) for answer in again)
    control.prepare(str(other_weights), 4)
    control.switch(4)
    now = [server.generate(prompt, max_new_tokens=8, temperature=0.0)["output_ids"] for prompt in prompts]
    assert now == [answer["ids"] for answer in tried], "what was tried is what goes live"
    with pytest.raises(EngineControlError, match="prompts"):
        control.try_weights(str(other_weights), 4, [], 8)


def test_speculative_decoding_changes_the_cost_but_not_the_greedy_answers(control, model_path, other_weights):
    prompts = [prompt_of(12, seed) for seed in range(4)]
    known = control.try_weights(str(model_path), 0, prompts, 8)
    plain = control.try_weights(str(other_weights), 4, prompts, 8)
    right = [answer["ids"] for answer in plain]
    half = [[*ids[:4], ids[4] + 1, *ids[5:]] for ids in right]
    for drafts in (right, half, [answer["ids"] for answer in known], [right[0], [], half[2], []]):
        again = control.try_weights(str(other_weights), 4, prompts, 8, drafts)
        assert [answer["ids"] for answer in again] == right
        for one, other in zip(again, plain, strict=True):
            assert one["log_probs"] == pytest.approx(other["log_probs"], abs=1e-4)
            assert one["ended"] == other["ended"]
    with pytest.raises(EngineControlError, match="drafts: got 1 drafts for 4 prompts"):
        control.try_weights(str(other_weights), 4, prompts, 8, [right[0]])


def test_weights_that_are_not_live_can_answer_at_a_temperature(control, model_path):
    prompts = [prompt_of(12, seed) for seed in range(3)] * 4
    greedy = control.try_weights(str(model_path), 0, prompts, 8)
    sampled = control.try_weights(str(model_path), 0, prompts, 8, temperature=1.0)
    assert len({tuple(answer["ids"]) for answer in greedy}) == 3
    assert len({tuple(answer["ids"]) for answer in sampled}) > 6, "the same prompts, answered in other words"
    assert all(len(answer["log_probs"]) == len(answer["ids"]) for answer in sampled)


def test_drafts_at_a_temperature_are_rejected(server, model_path):
    body = {"weight_version": "0", "prompts": [prompt_of(12, 1)], "max_new_tokens": 8, "drafts": [[5]]}
    refused = server.post("/try_weights", body | {"temperature": 1.0})
    assert refused.status_code == 400 and "drafts" in refused.text


def test_candidate_weights_of_a_folder_can_answer_next_to_prepared_ones(
    server, control, model_path, other_weights
):
    """As a comparison of versions does during an update."""
    prompts = [prompt_of(12, 1)]
    checksum = control.prepare(str(other_weights), 4)
    body = {"weight_version": "9", "model_path": str(model_path), "prompts": prompts, "max_new_tokens": 8}
    answer = server.post("/try_weights", body).json()["answers"][0]
    assert answer["ids"] == server.generate(prompts[0], max_new_tokens=8, temperature=0.0)["output_ids"]
    assert control.info().version == 0 and control.switch(4) == checksum, "it was still prepared"
    body |= {"model_path": str(model_path / "nothing")}
    assert server.post("/try_weights", body).status_code == 400


@pytest.mark.parametrize(("dtype", "copies"), [("auto", 3), ("float32", 3), ("bfloat16", 5)])
def test_a_spare_needs_room_for_its_copies_of_the_weights(
    dtype, copies, model_path, monkeypatch: pytest.MonkeyPatch
):
    args = EmbeddedArguments(model_path=str(model_path), device="cpu", dtype=dtype)
    needed = SPARE_NEEDS_BYTES + copies * (model_path / "model.safetensors").stat().st_size
    for available, is_enough in ((needed, False), (needed + 1, True)):
        monkeypatch.setattr(psutil, "virtual_memory", lambda free=available: SimpleNamespace(available=free))
        assert has_room(args) == is_enough
