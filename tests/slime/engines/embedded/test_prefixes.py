"""Tests that the cached prefix of a prompt is reused, and that answers are the same as without the cache."""

from __future__ import annotations

import time

import pytest
import torch

from slime.engines.embedded.prefixes import SHORTEST, Prefixes
from slime.engines.embedded.slab import PrefillCache
from tests.slime.engines.embedded.test_engine_core import TINY, prompt_of, request, run, service_of

__all__ = ["service_of"]


@pytest.fixture(params=["llama", "mistral"])
def model(request, tmp_path):
    """Returns (folder, the model in transformers); the second one has a sliding window."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    extra = {"sliding_window": 48} if request.param == "mistral" else {}
    config = AutoConfig.for_model(request.param, **TINY, **extra)
    reference = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    reference.save_pretrained(tmp_path)
    return tmp_path, reference


def test_the_next_turn_of_a_conversation_prefills_only_its_new_tokens(service_of, sampled_log_probs, model):
    folder, reference = model
    service = service_of(folder)
    first = request(service, prompt_of(60), max_new_tokens=20, temperature=1.0)
    run(service, [first])
    read = service.engine.counters.prompt_tokens
    said = first.prompt_ids + first.output_ids + prompt_of(9, 1)
    second = request(service, said, max_new_tokens=20, temperature=1.0)
    run(service, [second])
    # The last sampled token was never processed.
    assert (first.reused, second.reused) == (0, 79)
    assert service.engine.counters.prompt_tokens - read == 10
    expected = sampled_log_probs(reference, second.prompt_ids, second.output_ids)
    assert [entry[0] for entry in second.output.tokens] == pytest.approx(expected, abs=5e-5)


def test_answers_to_one_prompt_are_scored_without_another_prefill(service_of, model):
    folder, _ = model
    context = prompt_of(50)
    answers = [prompt_of(12, seed) for seed in (1, 2, 3)]

    def scored(service):
        found = []
        for answer in answers:
            one = request(service, context + answer, max_new_tokens=0, logprob_start_len=len(context) - 1)
            run(service, [one])
            found.append(one)
        return found

    warm = scored(service_of(folder))
    assert [one.reused for one in warm] == [0, 49, 49]
    cold = [scored(service_of(folder))[0]]
    for number in (1, 2):
        fresh = service_of(folder)
        one = request(fresh, context + answers[number], max_new_tokens=0, logprob_start_len=len(context) - 1)
        run(fresh, [one])
        cold.append(one)
    for ours, theirs in zip(warm, cold, strict=True):
        assert len(ours.input.tokens) == 13
        left, right = ([entry[0] for entry in one.input.tokens[1:]] for one in (ours, theirs))
        assert left == pytest.approx(right, abs=5e-5)


def test_cached_prefixes_of_older_weights_are_not_used(service_of, model):
    service = service_of(model[0])
    prompt = prompt_of(60)
    run(service, [request(service, prompt, max_new_tokens=4)])
    service.engine.replace_weights(lambda: None)
    again = request(service, prompt, max_new_tokens=400, temperature=0)
    service.engine.submit(again)
    while len(again.output_ids) < 5:
        time.sleep(0.001)
    service.engine.replace_weights(lambda: None)
    service.engine.abort(again.rid)
    while again.finish is None:
        time.sleep(0.01)
    last = request(service, prompt, max_new_tokens=4)
    run(service, [last])
    assert (again.reused, last.reused) == (0, 0)


def test_a_flushed_cache_is_empty(service_of, model):
    service = service_of(model[0])
    run(service, [request(service, prompt_of(60), max_new_tokens=4)])
    # An answer ends before its prefix is cached.
    deadline = time.monotonic() + 60
    while not service.engine.scheduler.prefixes.bytes and time.monotonic() < deadline:
        time.sleep(0.01)
    assert service.engine.scheduler.prefixes.bytes > 0
    service.engine.flush_cache()
    assert service.engine.scheduler.prefixes.bytes == 0


def layers_of(count):
    return {0: (torch.arange(count).float().reshape(1, count, 1), torch.ones(1, count, 1))}


def test_shared_prefixes_are_evicted_last_and_longer_ones_replace_shorter_ones():
    one = list(range(SHORTEST))
    each = len(one) * (4 + 8)
    kept = Prefixes(3 * each + 200)
    used, idle, newer = one, [7, *one[1:]], [8, *one[1:]]
    for tokens in (used, idle):
        kept.keep(tokens, layers_of(SHORTEST))
    cache = PrefillCache(40)
    assert kept.copy_into(cache, [*used, 99]) == SHORTEST
    assert cache.layers[0][0][0, :SHORTEST, 0].tolist() == [float(at) for at in range(SHORTEST)]
    for tokens in (newer, [9, *one[1:]]):
        kept.keep(tokens, layers_of(SHORTEST))
    assert kept.copy_into(PrefillCache(40), idle) == 0
    assert kept.copy_into(PrefillCache(40), newer) == SHORTEST
    before = kept.bytes
    kept.keep([*used, 5, 6], layers_of(SHORTEST + 2))
    assert kept.bytes - before == 2 * 12
    assert kept.copy_into(PrefillCache(40), [*used, 5, 6, 7]) == SHORTEST + 2


def test_a_prefix_that_fills_the_cache_evicts_all_others():
    each = SHORTEST * (4 + 8)
    for room, is_kept in ((each, True), (each - 1, False)):
        kept = Prefixes(room)
        for first in (7, 8):
            kept.keep([first, *range(1, SHORTEST)], layers_of(SHORTEST))
        assert kept.bytes == (each if is_kept else 0)


def test_too_large_and_too_short_prefixes_are_not_cached():
    kept = Prefixes(100)
    kept.keep(list(range(SHORTEST)), layers_of(SHORTEST))
    kept = Prefixes(1 << 20) if kept.bytes == 0 else kept
    kept.keep([1, 2, 3], layers_of(3))
    assert kept.bytes == 0
