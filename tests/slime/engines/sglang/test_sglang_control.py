"""Tests that a weight update of an SGLang engine counts only after verification, whatever the engine reports."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from slime.engines.client import EngineControl, EngineControlError
from slime.engines.sglang.routes import Loaded, Proof, SGLangRoutes, check_digests
from slime.errors import EngineError
from slime.weights.checksum import weights_checksum
from slime.weights.probe import expected_probe, measure, write_probe
from slime.weights.update import Candidate, WeightUpdate
from slime.weights.versions import WeightVersion, read_live
from tests.fakes.sglang import FakeSGLang, Running
from tests.fakes.tiny_engine_model import plain_model, save_model


def checksum_of(folder: Path) -> str:
    return weights_checksum(load_file(folder / "model.safetensors"))


@pytest.fixture
def start(model_path: Path) -> Iterator[Callable[[], Running]]:
    torch.set_num_threads(1)
    running: list[Running] = []

    def start_one() -> Running:
        running.append(Running(FakeSGLang(model_path, plain_model)))
        return running[-1]

    yield start_one
    for one in running:
        one.close()


@pytest.fixture
def engine(start) -> Running:
    return start()


@pytest.fixture
def control(engine) -> Iterator[EngineControl]:
    with EngineControl(engine.url, "sglang") as control:
        yield control


def nudged(folder: Path, target: Path, names: tuple[str, ...]) -> Path:
    """Returns the same weights with a change in these tensors that is too small to affect any log-prob."""
    shutil.copytree(folder, target)
    tensors = load_file(folder / "model.safetensors")
    for name in names:
        tensors[name] = tensors[name] * (1 + 1e-6)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return target


def test_requests_wait_during_an_update_which_is_verified(engine, control, model_path, other_weights):
    assert control.info().checksum == checksum_of(model_path)
    checksum = control.prepare(str(other_weights), 4)
    assert engine.fake.calls == [] and control.info().version == 0
    assert control.switch(4) == checksum == checksum_of(other_weights)
    assert engine.fake.calls == ["pause retract", "update 4", "continue"]
    info = control.info()
    assert (info.version, info.checksum, info.model_path) == (4, checksum, str(other_weights))


def test_a_switch_may_be_repeated_and_a_discarded_version_cannot_go_live(engine, control, other_weights):
    control.prepare(str(other_weights), 4)
    assert control.switch(4) == control.switch(4)
    control.prepare(str(other_weights), 5)
    control.discard()
    with pytest.raises(EngineControlError, match="not prepared"):
        control.switch(5)
    assert engine.fake.calls.count("update 4") == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("loads_nothing", "none of its tensors changed|differ by"),
        ("stale_head", "lm_head|differ by"),
        ("refuses", "no such shard"),
        ("breaks", "out of memory"),
        ("keeps_version", "reports another version"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_an_engine_that_did_not_load_weights_is_detected(
    engine, control, other_weights, fault, message, known
):
    """`known`: whether this client has seen the engine's earlier weights."""
    if known:
        control.info()
    engine.fake.fault = fault
    control.prepare(str(other_weights), 4)
    with pytest.raises(EngineControlError, match=message):
        control.switch(4)
    assert not engine.fake.paused
    info = control.info()
    assert (info.version, info.checksum) != (4, checksum_of(other_weights))


@pytest.mark.parametrize("fault", ["loads_nothing", "stale_head"])
def test_a_change_too_small_for_log_probs_is_still_verified(engine, control, model_path, tmp_path, fault):
    new = nudged(model_path, tmp_path / "new", ("model.embed_tokens.weight",))
    control.info()
    engine.fake.fault = fault
    control.prepare(str(new), 1)
    with pytest.raises(EngineControlError, match=r"none of its tensors changed|lm_head"):
        control.switch(1)
    assert control.info().checksum == ""
    with pytest.raises(EngineControlError, match=r"none of its tensors changed|lm_head"):
        control.switch(1)


def test_an_untied_head_outdated_by_a_tiny_step_is_reported(start, tmp_path):
    first = save_model(tmp_path / "first", seed=3, tie=False)
    new = nudged(first, tmp_path / "new", ("lm_head.weight", "model.norm.weight"))
    engine = Running(FakeSGLang(first, plain_model))
    engine.fake.head = engine.fake.model.lm_head.weight.detach().clone()
    try:
        with EngineControl(engine.url, "sglang") as control:
            assert control.info().checksum == checksum_of(first)
            engine.fake.fault = "stale_head"
            control.prepare(str(new), 1)
            with pytest.raises(EngineControlError, match=r"lm_head\.weight"):
                control.switch(1)
    finally:
        engine.close()


def test_a_new_client_verifies_the_weights_that_an_engine_reports(engine, control, other_weights):
    engine.fake.path, engine.fake.version = str(other_weights), "7"
    info = control.info()
    assert (info.version, info.checksum) == (7, "")


def spoil(folder: Path, change: Callable[[dict], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")


NORM = "model.layers.1.input_layernorm.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(NORM), "lacks 1 tensors: " + NORM),
        (lambda t: t.update(extra=torch.zeros(2)), "has 1 additional tensors: extra"),
        (lambda t: t.update({NORM: torch.zeros(31)}), "shape"),
        (lambda t: t[NORM].fill_(float("nan")), "not finite"),
    ],
)
def test_invalid_weights_are_rejected_before_contacting_the_engine(
    engine, control, other_weights, tmp_path, change, message
):
    bad = tmp_path / "bad"
    shutil.copytree(other_weights, bad)
    spoil(bad, change)
    with pytest.raises(EngineControlError, match=message):
        control.prepare(str(bad), 4)
    assert engine.fake.calls == []


def test_a_missing_shard_is_refused(control, other_weights, tmp_path):
    bad = tmp_path / "bad"
    shutil.copytree(other_weights, bad)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (bad / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(EngineControlError, match=r"lacks model-2\.safetensors"):
        control.prepare(str(bad), 4)


def test_memory_is_resumed_only_after_a_release(engine, control):
    control.resume_memory()
    control.release_memory()
    control.release_memory()
    control.resume_memory()
    control.resume_memory()
    assert engine.fake.calls == ["pause retract", "release", "resume", "continue"]


class Process:
    """The process of an engine, which may be replaced at any time."""

    def __init__(self) -> None:
        self.now, self.noted = "1", list[str]()

    def process(self) -> str:
        return self.now

    def note(self, process: str) -> None:
        self.noted.append(process)


def test_memory_of_a_restarted_engine_is_not_resumed(engine):
    running = Process()
    with EngineControl(engine.url, "sglang", routes=SGLangRoutes(memory=running)) as control:
        control.release_memory()
        running.now = "2"
        control.resume_memory()
        assert engine.fake.calls == ["pause retract", "release"], "a resume would end it"
        control.release_memory()
        running.now = "3"
        control.release_memory()
        control.resume_memory()
    assert engine.fake.calls[2:] == [*["pause retract", "release"] * 2, "resume", "continue"]
    assert running.noted == ["1", "", "2", "3", ""]


def digests_of(*ranks: dict[str, str]) -> dict[str, str]:
    return {f"{rank}/{name}": digest for rank, found in enumerate(ranks) for name, digest in found.items()}


@pytest.mark.parametrize(
    ("second", "stale"),
    [
        ({"a": "1", "b": "2"}, ""),  # the rows of b on the second rank are the same as before
        ({"a": "1", "b": "1"}, "1/a"),  # nothing changed there
    ],
)
def test_a_shard_whose_rows_did_not_change_is_not_stale(model_path, second, stale):
    names = {"a": ("F32", (2,)), "b": ("F32", (2,))}
    changed = SimpleNamespace(changed=lambda new: {"a", "b"}, shapes=names)
    old = Proof(Loaded(1, "", changed), digests_of({"a": "1", "b": "1"}, {"a": "1", "b": "1"}))
    new = digests_of({"a": "2", "b": "2"}, second)
    if not stale:
        check_digests(old, Loaded(2, "", changed), new)
        return
    with pytest.raises(
        EngineControlError, match=f"2 tensors in the engine were not replaced, for example {stale}"
    ):
        check_digests(old, Loaded(2, "", changed), new)


LAYER = "model.layers.0."


@pytest.mark.parametrize(
    ("on_disk", "stale"),
    [
        ("self_attn.k_proj.weight", "self_attn.qkv_proj.weight"),
        ("mlp.up_proj.weight", "mlp.gate_up_proj.weight"),
        ("mlp.experts.7.gate_proj.weight", "mlp.experts.w13_weight"),
        ("mlp.experts.7.down_proj.weight", "mlp.experts.w2_weight"),
        ("mlp.down_proj.weight", "mlp.down_proj.weight"),
    ],
)
def test_an_outdated_joined_matrix_of_sglang_is_detected(on_disk, stale):
    changed = SimpleNamespace(changed=lambda new: {LAYER + on_disk, "norm.weight"}, shapes={})
    old = Proof(Loaded(1, "", changed), digests_of({LAYER + stale: "1", "norm.weight": "1"}))
    check_digests(old, Loaded(2, "", changed), digests_of({LAYER + stale: "2", "norm.weight": "2"}))
    with pytest.raises(
        EngineControlError, match=f"1 tensors in the engine were not replaced, for example 0/{LAYER}{stale}"
    ):
        check_digests(old, Loaded(2, "", changed), digests_of({LAYER + stale: "1", "norm.weight": "2"}))


def test_a_probe_next_to_the_weights_is_used(other_weights, other_reference, tmp_path):
    folder = tmp_path / "version"
    shutil.copytree(other_weights, folder)
    computed = expected_probe(str(folder))
    assert computed.gap(measure(other_reference, folder, 320).log_probs) < 1e-5
    write_probe(folder, measure(plain_model(save_model(tmp_path / "third", seed=9)), folder, 320))
    assert expected_probe(str(folder)).gap(computed.log_probs) > 0.1


def update_over(engines: list[EngineControl], run_dir: Path) -> WeightUpdate:
    return WeightUpdate(engines, run_dir, lambda candidate: None, patience=5.0, retry_interval=0.05)


def version_of(folder: Path, version: int) -> Candidate:
    return Candidate(
        WeightVersion(version, str(folder), checksum_of(folder)), version - 1, version - 1 or None
    )


def test_one_transaction_over_an_embedded_and_an_sglang_engine(
    server, engine, control, model_path, other_weights, tmp_path
):
    with EngineControl(server.url, "embedded") as embedded:
        update = update_over([embedded, control], tmp_path)
        update.publish(version_of(model_path, 1))
        update.publish(version_of(other_weights, 2))
        assert embedded.info().checksum == control.info().checksum == checksum_of(other_weights)
        assert embedded.info().version == control.info().version == 2
        embedded.prepare(str(model_path), 0)
        embedded.switch(0)


def test_a_failed_engine_call_is_repeated(engine, control, model_path, other_weights, tmp_path):
    update = update_over([control], tmp_path)
    update.publish(version_of(model_path, 1))
    engine.fake.fault, engine.fake.faults_left = "loads_nothing", 1
    update.publish(version_of(other_weights, 2))
    assert (control.info().version, control.info().checksum) == (2, checksum_of(other_weights))


def test_a_permanently_failing_engine_rolls_back_all_engines(start, model_path, other_weights, tmp_path):
    good, bad = start(), start()
    controls = [EngineControl(one.url, "sglang") for one in (good, bad)]
    update = update_over(controls, tmp_path)
    update.publish(version_of(model_path, 1))
    bad.fake.fault, bad.fake.faults_left = "stale_head", 6
    with pytest.raises(EngineError, match=r"lm_head|differ by"):
        update.publish(version_of(other_weights, 2))
    assert [control.info().version for control in controls] == [1, 1]
    assert {control.info().checksum for control in controls} == {checksum_of(model_path)}
    live = read_live(tmp_path)
    assert live is not None and live.version == 1
    for control in controls:
        control.close()


def test_the_first_verification_may_wait_for_kernel_compilation_but_not_for_a_silent_engine(engine) -> None:
    engine.fake.compiles = 0.6
    with EngineControl(engine.url, "sglang", timeout=0.2) as control:
        assert control.info().checksum
    with EngineControl(engine.url, "sglang", timeout=0.2, prepare_timeout=0.3) as hasty:
        with pytest.raises(EngineControlError):
            hasty.info()
