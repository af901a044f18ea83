"""Tests adapters on one base: several in one batch, each with the answers of the merged model; a budget;
replacement."""

from __future__ import annotations

import random
import shutil
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.engines.embedded.lora import table as table_module
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.service import EngineService
from slime.engines.requests import GenerateRequest, UnknownAdapterError, WeightsError
from tests.fakes.lora_folders import ALL, merge, save_adapter
from tests.fakes.tiny_engine_model import plain_model, save_model
from tests.slime.engines.embedded.test_engine_core import prompt_of, run, service_of

__all__ = ["service_of"]

TINY_CLAW = Path(__file__).parents[4] / "openclaw-test" / "tiny_claw" / "model"
SHAPES = {
    "ada": {"rank": 4},
    "bob": {"rank": 8, "layers": ("q_proj", "v_proj")},
    "cem": {"rank": 2, "layers": (*ALL, "lm_head"), "lora_alpha": 3.0},
    "dee": {"rank": 4, "layers": ("down_proj",)},
}


def ask(
    service: EngineService, prompt: list[int], adapter: str | None, scored: int = -1, **params
) -> Sequence:
    return service.sequence(
        GenerateRequest.model_validate(
            {
                "input_ids": prompt,
                "return_logprob": True,
                "logprob_start_len": scored,
                "lora_path": adapter,
                "sampling_params": {"ignore_eos": True, "temperature": 1.0, **params},
            }
        )
    )


class People:
    """A model folder, adapters of it, and the merged models."""

    def __init__(self, model: Path, folder: Path, size: float = 0.2) -> None:
        self.model = model
        self.folders = {
            name: save_adapter(folder / name, model, seed, **{"size": size, **shape})
            for seed, (name, shape) in enumerate(SHAPES.items())
        }
        self.merged = {name: merge(plain_model(model), path) for name, path in self.folders.items()}
        self.merged[None] = plain_model(model)

    def load(self, service: EngineService, *names: str) -> EngineService:
        service.engine.start()
        for name in names or SHAPES:
            service.adapters.register(name, str(self.folders[name]))
        return service


@pytest.fixture(scope="module")
def people(tmp_path_factory) -> People:
    folder = tmp_path_factory.mktemp("people")
    return People(save_model(folder / "model", seed=1, tie=False), folder)


@pytest.fixture
def check(sampled_log_probs):
    """f(people, sequences): checks that each was sampled by the model with its adapter."""

    def compare(people: People, rows: list[Sequence], within: float = 5e-5) -> None:
        for row in rows:
            assert row.finish is not None and "status_code" not in row.finish, row.finish
            expected = sampled_log_probs(people.merged[row.adapter], row.prompt_ids, row.output_ids)
            assert [entry[0] for entry in row.output.tokens] == pytest.approx(expected, abs=within), (
                row.adapter
            )

    return compare


def test_rows_of_one_batch_are_each_answered_by_their_own_adapter(service_of, people, check):
    service = people.load(service_of(people.model, chunked_prefill_size=24))
    names = [None, "ada", "bob", "cem", "dee", "ada", None, "cem"]
    rows = [ask(service, prompt_of(5 + 9 * i, i), name, max_new_tokens=12) for i, name in enumerate(names)]
    run(service, rows)
    check(people, rows)
    assert all(row.spans == [(0, 0, 12)] for row in rows)
    answers = {tuple(row.output_ids) for row in rows}
    assert len(answers) == len(rows)


def test_tiny_claw_with_adapters_equals_the_merged_model(service_of, check, tmp_path):
    people = People(TINY_CLAW, tmp_path, size=0.05)
    service = people.load(service_of(people.model))
    rows = [ask(service, prompt_of(20, i), name, max_new_tokens=8) for i, name in enumerate([None, *SHAPES])]
    run(service, rows)
    check(people, rows, within=2e-4)


def test_in_half_precision_an_adapter_is_exact_up_to_rounding(service_of, people, check):
    service = people.load(service_of(people.model, dtype="bfloat16"))
    rows = [
        ask(service, prompt_of(20, i), name, max_new_tokens=6) for i, name in enumerate([None, "ada", "bob"])
    ]
    run(service, rows)
    check(people, rows, within=0.25)


def test_prompts_are_scored_by_the_adapter_too(service_of, people, log_probs_of):
    service = people.load(service_of(people.model, chunked_prefill_size=16))
    prompt = prompt_of(40)
    rows = [ask(service, prompt, name, scored=0, max_new_tokens=0) for name in (None, "ada", "cem")]
    run(service, rows)
    for row in rows:
        table = log_probs_of(people.merged[row.adapter], prompt)
        expected = [table[at - 1, prompt[at]].item() for at in range(1, 40)]
        assert [entry[0] for entry in row.input.tokens[1:]] == pytest.approx(expected, abs=5e-5)


def test_cached_prefixes_are_used_only_by_the_same_adapter(service_of, people, check):
    service = people.load(service_of(people.model))
    prompt = prompt_of(60)
    for name in (None, "ada", "bob"):
        first, second = (ask(service, prompt, name, max_new_tokens=4) for _ in range(2))
        run(service, [first])
        run(service, [second])
        assert (first.reused, second.reused) == (0, 59), name
        check(people, [first, second])


def test_without_adapter_requests_the_base_output_is_unchanged(service_of, people):
    def logits(service):
        one = ask(service, prompt_of(30), None, max_new_tokens=8)
        run(service, [one])
        return [entry[0] for entry in one.output.tokens], one.output_ids

    plain, loaded = service_of(people.model), people.load(service_of(people.model))
    run(loaded, [ask(loaded, prompt_of(30), "ada", max_new_tokens=2)])
    torch.manual_seed(0)
    one, other = (ask(service, prompt_of(30), None, max_new_tokens=8, seed=7) for service in (plain, loaded))
    run(plain, [one])
    run(loaded, [other])
    assert one.output_ids == other.output_ids and one.output.tokens == other.output.tokens


@pytest.mark.parametrize("most", [1, 2])
def test_more_adapters_than_fit_are_all_answered(service_of, people, check, most):
    service = people.load(service_of(people.model, max_loaded_adapters=most))
    names = [*SHAPES, None] * 4
    random.Random(most).shuffle(names)
    rows = [ask(service, prompt_of(10 + i, i), name, max_new_tokens=6) for i, name in enumerate(names)]
    run(service, rows)
    check(people, rows)
    assert service.adapters.loads > len(SHAPES)
    assert sum(one["in_memory"] for one in service.adapters.listing().values()) <= most


def test_a_busy_adapter_does_not_block_another(service_of, people, check):
    """Requests for one adapter overlap without end; a request for another one still gets its place."""
    service = people.load(service_of(people.model, max_loaded_adapters=1), "ada", "bob")
    busy = [ask(service, prompt_of(9, i), "ada", max_new_tokens=40) for i in range(2)]
    for one in busy:
        service.engine.submit(one)
    waiting = ask(service, prompt_of(9), "bob", max_new_tokens=4)
    service.engine.submit(waiting)
    end = time.monotonic() + 30
    while waiting.finish is None:
        assert time.monotonic() < end
        if busy[-1].output_ids:
            busy.append(ask(service, prompt_of(9, len(busy)), "ada", max_new_tokens=40))
            service.engine.submit(busy[-1])
        time.sleep(0.001)
    run(service, [])
    while any(one.finish is None for one in busy):
        assert time.monotonic() < end
        time.sleep(0.005)
    check(people, [waiting, *busy])


def test_other_requests_continue_while_an_evicted_adapter_is_loaded(service_of, people, check, monkeypatch):
    service = people.load(service_of(people.model, max_loaded_adapters=1), "ada", "bob")
    run(service, [ask(service, prompt_of(9), "bob", max_new_tokens=2)])
    read, go_on = table_module.read_factors, threading.Event()
    monkeypatch.setattr(table_module, "read_factors", lambda *words: go_on.wait(30) and read(*words))
    waiting = ask(service, prompt_of(9), "ada", max_new_tokens=4)
    service.engine.submit(waiting)
    others = [ask(service, prompt_of(9, i), None, max_new_tokens=10) for i in range(3)]
    run(service, others)
    assert waiting.finish is None and not waiting.output_ids
    go_on.set()
    run(service, [last := ask(service, prompt_of(9), "ada", max_new_tokens=4)])
    check(people, [waiting, *others, last])


def test_a_waiting_client_that_disconnects_frees_the_slot(service_of, people, check):
    service = people.load(service_of(people.model, max_loaded_adapters=1), "ada", "bob")
    running = ask(service, prompt_of(9), "ada", max_new_tokens=200)
    service.engine.submit(running)
    while not running.output_ids:
        time.sleep(0.001)
    waiting = ask(service, prompt_of(9), "bob", max_new_tokens=4)
    service.engine.submit(waiting)
    service.engine.between_steps(lambda: None)
    service.engine.abort(waiting.rid)
    second = ask(service, prompt_of(9, 2), "ada", max_new_tokens=4)
    run(service, [second])
    assert running.finish is None or len(running.output_ids) == 200
    run(service, [ask(service, prompt_of(9, 3), "bob", max_new_tokens=4)])
    check(people, [second])


def test_an_update_of_one_adapter_changes_only_its_version(service_of, people, check, tmp_path):
    service = people.load(service_of(people.model), "ada", "bob")
    prompt = prompt_of(60)
    run(service, [ask(service, prompt, name, max_new_tokens=2) for name in ("ada", "bob")])
    ada, bob, base = (ask(service, prompt_of(9), name, max_new_tokens=300) for name in ("ada", "bob", None))
    for one in (ada, bob, base):
        service.engine.submit(one)
    while len(ada.output_ids) < 5:
        time.sleep(0.001)
    new = save_adapter(tmp_path / "ada-1", people.model, seed=50)
    replaced = service.adapters.register("ada", str(new))
    assert replaced.version == 1 and service.adapters.register("ada", str(new), 1) == replaced
    run(service, [])
    while any(one.finish is None for one in (ada, bob, base)):
        time.sleep(0.005)
    assert [version for version, _, _ in ada.spans] == [0, 1]
    assert [one.spans for one in (bob, base)] == [[(0, 0, 300)]] * 2
    check(people, [bob, base])
    again = [ask(service, prompt, name, max_new_tokens=4) for name in ("ada", "bob")]
    run(service, again)
    assert [one.reused for one in again] == [0, 59]
    people.merged["ada-1"] = merge(plain_model(people.model), new)
    again[0].adapter = "ada-1"
    check(people, again)
    with pytest.raises(WeightsError, match="already has other weights"):
        service.adapters.register("ada", str(people.folders["ada"]), 1)


def test_an_unloaded_adapter_leaves_no_data_and_can_be_reloaded(service_of, people, check):
    service = people.load(service_of(people.model), "ada", "bob")
    running = [ask(service, prompt_of(60), name, max_new_tokens=200) for name in ("ada", "bob")]
    for one in running:
        service.engine.submit(one)
    while not running[0].output_ids:
        time.sleep(0.001)
    service.adapters.unregister("ada")
    assert running[0].finish["type"] == "abort" and "unloaded" in running[0].finish["message"]
    with pytest.raises(UnknownAdapterError, match="'ada' is not loaded"):
        ask(service, prompt_of(9), "ada", max_new_tokens=2)
    with pytest.raises(UnknownAdapterError):
        service.adapters.unregister("ada")
    assert all(one.adapter != "ada" for one in service.engine.scheduler.prefixes._kept)
    service.adapters.register("ada", str(people.folders["ada"]))
    back = ask(service, prompt_of(60), "ada", max_new_tokens=4)
    run(service, [back])
    assert back.reused == 0
    check(people, [back])


def test_a_request_whose_adapter_is_unloaded_after_its_check_is_ended(service_of, people):
    service = people.load(service_of(people.model), "ada")
    late = ask(service, prompt_of(9), "ada", max_new_tokens=2)
    service.adapters.unregister("ada")
    run(service, [late])
    assert "unloaded" in late.finish["message"] and not late.output_ids


def test_released_memory_contains_no_adapters(service_of, people, check):
    service = people.load(service_of(people.model), "ada")
    running = ask(service, prompt_of(9), "ada", max_new_tokens=30)
    service.engine.submit(running)
    while not running.output_ids:
        time.sleep(0.001)
    service.engine.release_memory()
    assert service.adapters.nbytes == 0
    service.engine.resume_memory()
    run(service, [])
    while running.finish is None:
        time.sleep(0.005)
    check(people, [running])


def test_a_changed_folder_is_not_served_as_the_earlier_version(service_of, people, tmp_path):
    folder = shutil.copytree(people.folders["ada"], tmp_path / "ada")
    service = people.load(service_of(people.model, max_loaded_adapters=1), "bob")
    service.adapters.register("eve", str(folder))
    save_adapter(folder, people.model, seed=99)
    run(service, [ask(service, prompt_of(9), "bob", max_new_tokens=2)])
    asked = ask(service, prompt_of(9), "eve", max_new_tokens=2)
    run(service, [asked])
    assert asked.finish["status_code"] == 400 and "no longer contains version 0" in asked.finish["message"]
    assert service.adapters.register("eve", str(folder)).version == 1
    assert service.adapters.register("eve", str(folder)).version == 1
    save_adapter(folder, people.model, seed=99, lora_alpha=1.0)
    assert service.adapters.register("eve", str(folder)).version == 2
    run(service, [asked := ask(service, prompt_of(9), "eve", max_new_tokens=2)])
    assert asked.spans == [(2, 0, 2)]


def _without_half(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    del tensors[next(name for name in tensors if "lora_B" in name)]
    save_file(tensors, folder / "adapter_model.safetensors")


def _with(name: str, tensor: torch.Tensor, folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file(tensors | {name: tensor}, folder / "adapter_model.safetensors")


LAYER = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "adapter_config.json").unlink(), "is not an adapter"),
        (lambda folder: (folder / "adapter_model.safetensors").unlink(), "cannot read the adapter in"),
        (_without_half, "lacks one of the two LoRA factors"),
        (lambda folder: _with(LAYER, torch.ones(3, 32), folder), "2 different ranks"),
        (lambda folder: _with(LAYER, torch.ones(4, 31), folder), "do not match its shape"),
        (lambda folder: _with(LAYER, torch.full((4, 32), float("nan")), folder), "not finite"),
        (
            lambda folder: _with("base_model.model.lm_head.weight", torch.ones(320, 32), folder),
            r"contains whole weights \(lm_head",
        ),
        (lambda folder: _rename(folder), "not a linear layer of this model"),
    ],
)
def test_a_folder_that_is_not_servable_as_an_adapter_is_rejected(
    service_of, people, tmp_path, change, message
):
    service = people.load(service_of(people.model), "bob")
    folder = shutil.copytree(people.folders["ada"], tmp_path / "ada")
    change(folder)
    with pytest.raises(WeightsError, match=message):
        service.adapters.register("ada", str(folder))
    assert set(service.adapters.listing()) == {"bob"}


def _rename(folder: Path) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    save_file(
        {name.replace("layers.0", "layers.7"): tensor for name, tensor in tensors.items()},
        folder / "adapter_model.safetensors",
    )


def test_no_request_is_answered_by_another_adapter(service_of, people, check):
    """Random prompts that share prefixes, a budget of two, and updates in between."""
    draws = random.Random(5)
    service = people.load(service_of(people.model, max_loaded_adapters=2, chunked_prefill_size=48))
    beginnings = [prompt_of(40, seed) for seed in range(3)]
    for version in range(1, 4):
        rows = []
        for number in range(16):
            prompt = draws.choice(beginnings) + prompt_of(draws.randrange(1, 8), number)
            rows.append(
                ask(service, prompt, draws.choice([None, *SHAPES]), max_new_tokens=draws.randrange(1, 9))
            )
        run(service, rows)
        check(people, rows)
        name = draws.choice([*SHAPES])
        service.adapters.register(name, str(people.folders[name]), version)
        again = ask(service, rows[0].prompt_ids, name, max_new_tokens=2)
        run(service, [again])
        assert again.spans == [(version, 0, 2)] or service.adapters.listing()[name]["weight_version"] == str(
            version
        )
        check(people, [again])


def test_programs_load_name_and_unload_adapters_over_http(server, people_of_server, sampled_log_probs):
    folder, merged = people_of_server
    prompt = prompt_of(12)
    asked = {"input_ids": prompt, "lora_path": "ada", "return_logprob": True}
    asked["sampling_params"] = {"max_new_tokens": 5, "ignore_eos": True}
    refused = server.post("/generate", asked)
    assert refused.status_code == 404
    assert refused.json()["error"] == {
        "message": "lora_path: the adapter 'ada' is not loaded",
        "code": "adapter_not_loaded",
    }
    loaded = server.post(
        "/load_lora_adapter", {"lora_name": "ada", "lora_path": str(folder), "weight_version": "3"}
    )
    assert loaded.json()["weight_version"] == "3" and loaded.json()["checksum"]
    answer = server.post("/generate", asked).json()
    expected = sampled_log_probs(merged, prompt, answer["output_ids"])
    found = [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]
    assert found == pytest.approx(expected, abs=5e-5)
    assert answer["meta_info"]["weight_versions"] == [{"version": "3", "start": 0, "end": 5}]
    known = server.client.get("/lora_adapters").json()["adapters"]
    assert known["ada"]["lora_path"] == str(folder) and known["ada"]["in_memory"]
    assert (
        server.post("/load_lora_adapter", {"lora_name": "a:b", "lora_path": str(folder)}).status_code == 400
    )
    wrong = server.post("/load_lora_adapter", {"lora_name": "bob", "lora_path": "/nowhere"})
    assert wrong.status_code == 400 and "is not an adapter" in wrong.json()["message"]
    assert server.post("/unload_lora_adapter", {"lora_name": "ada"}).json()["success"]
    assert server.post("/unload_lora_adapter", {"lora_name": "ada"}).status_code == 404
    assert server.post("/generate", asked).status_code == 404


@pytest.fixture
def people_of_server(model_path, tmp_path):
    folder = save_adapter(tmp_path / "ada", model_path, seed=3)
    return folder, merge(plain_model(model_path), folder)
