"""Tests the engine inside one process: other architectures, a full cache, failing steps, fair prefill."""

from __future__ import annotations

import random
import time

import pytest
import torch

from slime.engines.embedded.arguments import EmbeddedArguments
from slime.engines.embedded.kv_cache import length_class
from slime.engines.embedded.model import ModelError
from slime.engines.embedded.scheduler import share
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.service import EngineService
from slime.engines.embedded.slab import PrefillCache, Slab
from slime.engines.embedded.step import EngineStep
from slime.engines.requests import GenerateRequest, SamplingParams


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(4, 300), k=length)


def run(service: EngineService, sequences: list[Sequence], timeout: float = 30.0) -> None:
    """Serves the sequences with the service's decode thread until all have ended."""
    if not service.engine.alive:
        service.engine.start()
    service.engine.pause("in_place")
    for sequence in sequences:
        service.engine.submit(sequence)
    service.engine.resume()
    end = time.monotonic() + timeout
    while any(sequence.finish is None for sequence in sequences):
        assert time.monotonic() < end and service.engine.alive
        time.sleep(0.005)


def request(service: EngineService, prompt: list[int], **params) -> Sequence:
    start = params.pop("logprob_start_len", -1)
    body = {"input_ids": prompt, "return_logprob": True, "logprob_start_len": start}
    body["priority"] = params.pop("priority", 0)
    body["sampling_params"] = {"ignore_eos": True, **params}
    return service.sequence(GenerateRequest.model_validate(body))


@pytest.fixture
def service_of():
    """f(folder, **arguments): an EngineService whose thread is stopped after the test."""
    started: list[EngineService] = []

    def build(folder, **arguments) -> EngineService:
        started.append(EngineService(EmbeddedArguments(model_path=str(folder), **arguments)))
        return started[-1]

    yield build
    for service in started:
        if service.engine.alive:
            service.engine.stop()


TINY = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "initializer_range": 0.3,
    "max_position_embeddings": 512,
}


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        ("llama", {}),
        ("qwen2", {"tie_word_embeddings": True}),
        ("mistral", {"sliding_window": 16}),
        (
            "gemma3_text",
            {"sliding_window": 16, "layer_types": ["sliding_attention"] * 2 + ["full_attention"]},
        ),
        ("olmo2", {}),
    ],
)
def test_other_architectures_equal_a_plain_forward_pass(service_of, sampled_log_probs, tmp_path, kind, extra):
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **TINY, **extra)
    reference = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    reference.save_pretrained(tmp_path)
    service = service_of(tmp_path, chunked_prefill_size=24)
    rows = [request(service, prompt_of(n, n), max_new_tokens=20, temperature=1.0) for n in (5, 40, 90)]
    run(service, rows)
    for row in rows:
        expected = sampled_log_probs(reference, row.prompt_ids, row.output_ids)
        assert [entry[0] for entry in row.output.tokens] == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("kind", ["mamba", "gpt_oss", "lfm2"])
def test_an_architecture_without_kv_cache_support_is_rejected(tmp_path, kind):
    from transformers import AutoConfig, AutoModelForCausalLM

    extras = {
        "gpt_oss": {"num_local_experts": 2, "num_experts_per_tok": 1},
        "lfm2": {"layer_types": ["conv", "full_attention", "conv"]},
    }
    sizes = {k: v for k, v in TINY.items() if kind != "mamba" or k in ("vocab_size", "hidden_size")}
    AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, **sizes, **extras.get(kind, {}))
    ).save_pretrained(tmp_path)
    with pytest.raises(
        ModelError,
        match=r"(unsupported|support this) architecture|support (the recurrent|mixtures of experts)",
    ):
        EngineService(EmbeddedArguments(model_path=str(tmp_path)))


def test_the_engine_never_uses_cudnn_attention(service_of, model_path, monkeypatch):
    """cuDNN would make a plan for every new length, so for every step."""
    from slime.engines.embedded import attention

    torch.backends.cuda.enable_cudnn_sdp(True)
    seen, compute = [], attention.scaled_dot_product_attention

    def attend(*given, **named):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return compute(*given, **named)

    monkeypatch.setattr(attention, "scaled_dot_product_attention", attend)
    service = service_of(model_path)
    run(service, [request(service, prompt_of(20), max_new_tokens=3)])
    assert seen and not any(seen)


def test_chunked_prefill_equals_whole_prefill(service_of, model_path):
    rows = []
    for size in (64, 2048):
        service = service_of(model_path, chunked_prefill_size=size)
        row = request(service, prompt_of(1000), max_new_tokens=8, temperature=0, logprob_start_len=0)
        run(service, [row])
        rows.append(row)
    chunked, whole = rows
    assert chunked.output_ids == whole.output_ids
    for a, b in ((chunked.input, whole.input), (chunked.output, whole.output)):
        values = [[entry[0] for entry in part.tokens if entry[0] is not None] for part in (a, b)]
        assert values[0] == pytest.approx(values[1], abs=2e-5)


def test_a_full_kv_cache_retracts_the_youngest_request_without_loss(
    service_of, model_path, reference, sampled_log_probs
):
    service = service_of(model_path, max_total_tokens=1100)
    rows = [request(service, prompt_of(150, n), max_new_tokens=300, temperature=1.0) for n in range(4)]
    run(service, rows)
    assert sum(row.retractions for row in rows) > 0 and rows[0].retractions == 0
    for row in rows:
        assert len(row.output_ids) == 300
        expected = sampled_log_probs(reference, row.prompt_ids, row.output_ids)
        assert [entry[0] for entry in row.output.tokens] == pytest.approx(expected, abs=2e-5)


def test_a_half_prefilled_prompt_is_prefilled_again_after_an_update(
    service_of, model_path, other_weights, other_reference, sampled_log_probs, log_probs_of, monkeypatch
):
    service = service_of(model_path, chunked_prefill_size=64)
    monkeypatch.setattr(service.engine, "between_steps", lambda call: call())
    prompt = prompt_of(300)
    row = request(service, prompt, max_new_tokens=5, logprob_start_len=0)
    service.engine.scheduler.add(row)
    with torch.inference_mode():
        for _ in range(3):
            service.engine.step(EngineStep())
        assert row.cached > 100
        service.weights.prepare(str(other_weights), 1)
        service.weights.switch(1)
        while row.finish is None:
            service.engine.step(EngineStep())
    assert row.spans == [(1, 0, 5)]
    expected = sampled_log_probs(other_reference, prompt, row.output_ids)
    assert [entry[0] for entry in row.output.tokens] == pytest.approx(expected, abs=1e-5)
    table = log_probs_of(other_reference, prompt)
    scored = [table[i - 1, prompt[i]].item() for i in range(1, 300)]
    assert [entry[0] for entry in row.input.tokens[1:]] == pytest.approx(scored, abs=1e-4)


def test_a_failing_step_fails_its_requests_and_the_engine_continues(service_of, model_path, monkeypatch):
    service = service_of(model_path)
    forward, calls = service.model.forward, iter([True, True, False])

    def breaks_at_the_third(*args):
        if not next(calls, True):
            raise RuntimeError("out of luck")
        return forward(*args)

    monkeypatch.setattr(service.model, "forward", breaks_at_the_third)
    rows = [request(service, prompt_of(5, n), max_new_tokens=50) for n in range(3)]
    run(service, rows)
    for row in rows:
        assert row.finish is not None and row.finish["status_code"] == 500
        assert "out of luck" in row.finish["message"]
    after = request(service, prompt_of(5), max_new_tokens=50)
    run(service, [after])
    assert after.finish == {"type": "length", "length": 50}
    assert service.engine.counters.failed_steps == 1


def test_non_finite_logits_fail_only_their_row(service_of, model_path, monkeypatch):
    service = service_of(model_path)
    good = request(service, prompt_of(5, 1), max_new_tokens=30, temperature=0)
    run(service, [good])
    forward = service.model.forward

    def poison_one_row(ids, positions, keep, batch, images):
        logits = forward(ids, positions, keep, batch, images)
        if len(keep) == 2 and positions[0] > 20:
            logits[0] = float("nan")
        return logits

    monkeypatch.setattr(service.model, "forward", poison_one_row)
    bad = request(service, prompt_of(5, 2), max_new_tokens=30, temperature=0)
    again = request(service, prompt_of(5, 1), max_new_tokens=30, temperature=0)
    run(service, [bad, again])
    assert bad.finish is not None and "not finite" in bad.finish["message"]
    assert again.output_ids == good.output_ids


def sequence(length: int, cached: int = 0) -> Sequence:
    made = Sequence("x", list(range(length)), SamplingParams(), 10, frozenset())
    made.cached = cached
    return made


def shares(prefilling: list[Sequence], budget: int) -> list[int]:
    chunks = {id(chunk.sequence): chunk for chunk in share(prefilling, budget)}
    assert all(chunk.first == chunk.sequence.cached for chunk in chunks.values())
    return [chunks[id(s)].last - chunks[id(s)].first if id(s) in chunks else 0 for s in prefilling]


def test_a_short_prompt_overtakes_a_long_one_which_still_progresses():
    assert shares([sequence(9000), sequence(1000), sequence(20)], 512) == [256, 236, 20]


def test_budget_left_by_short_prompts_is_given_to_the_first_prompt():
    assert shares([sequence(9000), sequence(20)], 512) == [492, 20]


def test_prompts_beyond_the_budget_wait():
    assert shares([sequence(10) for _ in range(8)], 4) == [2, 2, 0, 0, 0, 0, 0, 0]
    assert shares([sequence(10), sequence(10)], 1) == [1, 0]


def test_prefill_chunks_shrink_with_depth_so_that_no_step_is_long():
    assert shares([sequence(30000, cached=2048 * 3)], 512) == [128]
    assert shares([sequence(9000, cached=2048 * 3), sequence(100)], 512) == [103, 100]
    assert shares([sequence(4000, cached=2048)], 1) == [1]


def test_kv_cache_rows_stay_compact_and_keep_their_values():
    slab, rows = Slab(256), [sequence(5, cached=n + 1) for n in range(9)]
    for value, row in enumerate(rows):
        cache = PrefillCache(row.cached)
        cache.write(
            0, 0, torch.full((2, row.cached, 4), float(value)), torch.full((2, row.cached, 4), -float(value))
        )
        slab.add(row, cache.views(row.cached))
    for gone in (rows[8], rows[0], rows[4], rows[3], rows[7], rows[1]):
        slab.remove(gone)
        assert gone.slab is None
        assert sorted(row.row for row in slab.rows) == list(range(len(slab.rows)))
    for value, row in enumerate(rows):
        if row.slab is not None:
            keys, values = slab.row_views(row.row)[0]
            assert keys.shape == (2, row.cached, 4)
            assert (keys == value).all() and (values == -value).all()


def test_length_classes_are_powers_of_two():
    assert [length_class(n) for n in (1, 256, 257, 5000)] == [256, 256, 512, 8192]


def in_steps(service: EngineService, count: int, *rows: Sequence) -> list[list[int]]:
    """Adds the sequences and returns how many tokens each has after each of `count` steps."""
    for row in rows:
        service.engine.scheduler.add(row)
    lengths = []
    with torch.inference_mode():
        for _ in range(count):
            service.engine.step(EngineStep())
            lengths.append([len(row.output_ids) for row in rows])
    return lengths


def test_requests_that_give_way_take_every_third_step_of_others(service_of, model_path):
    service = service_of(model_path)
    dream = request(service, prompt_of(5), max_new_tokens=100, priority=-1)
    assert in_steps(service, 4, dream)[-1] == [4]
    person = request(service, prompt_of(6), max_new_tokens=10)
    steps = in_steps(service, 9, person)
    assert [row[0] for row in steps] == [1, 2, 3, 4, 5, 6, 7, 8, 9] and len(dream.output_ids) == 4 + 3
    in_steps(service, 6)
    assert person.finish and len(dream.output_ids) >= 4 + 3 + 5


def test_answers_do_not_depend_on_the_requests_that_give_way(service_of, model_path):
    alone = request(service_of(model_path), prompt_of(9), max_new_tokens=20, temperature=0.0)
    service = service_of(model_path)
    run(service, [alone])
    dreams = [
        request(service, prompt_of(300, n), max_new_tokens=40, priority=-1, temperature=0.0) for n in range(3)
    ]
    among = request(service, prompt_of(9), max_new_tokens=20, temperature=0.0)
    run(service, [*dreams, among])
    assert among.output_ids == alone.output_ids
    again = request(service, prompt_of(300, 1), max_new_tokens=40, temperature=0.0)
    run(service, [again])
    assert dreams[1].output_ids == again.output_ids


def test_requests_that_give_way_leave_room_for_others(service_of, model_path):
    service = service_of(model_path, max_running_requests=4, max_total_tokens=1024)
    dreams = [request(service, prompt_of(5, n), max_new_tokens=100, priority=-1) for n in range(5)]
    in_steps(service, 2, *dreams)
    assert [len(row.output_ids) for row in dreams] == [2, 2, 0, 0, 0], "at most half of the places"
    people = [request(service, prompt_of(6, n), max_new_tokens=9) for n in range(4)]
    in_steps(service, 11, *people)
    assert all(row.finish for row in people), "each step retracts one dream for the oldest waiting request"
    assert not any(row.finish for row in dreams)
    in_steps(service, 400)
    assert all(len(row.output_ids) == 100 for row in dreams)
