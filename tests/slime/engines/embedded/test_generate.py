"""Tests that sampled ids and reported log-probs equal those of plain Hugging Face."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

EOS = 3


def prompt_of(length: int, seed: int = 0) -> list[int]:
    return random.Random(seed).choices(range(4, 300), k=length)


def values(answer: dict) -> list[float]:
    return [entry[0] for entry in answer["meta_info"]["output_token_logprobs"]]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_log_probs_of_sampled_tokens_equal_a_plain_forward_pass(
    server, reference, sampled_log_probs, temperature
):
    prompt = prompt_of(20)
    answer = server.generate(prompt, max_new_tokens=40, temperature=temperature, ignore_eos=True)
    expected = sampled_log_probs(reference, prompt, answer["output_ids"], temperature)
    assert values(answer) == pytest.approx(expected, abs=2e-5)
    assert [entry[1] for entry in answer["meta_info"]["output_token_logprobs"]] == answer["output_ids"]


def test_log_probs_are_of_the_full_distribution_when_sampling_is_truncated(
    server, reference, sampled_log_probs
):
    prompt = prompt_of(12)
    answer = server.generate(prompt, max_new_tokens=30, temperature=0.8, top_p=0.7, top_k=20, ignore_eos=True)
    expected = sampled_log_probs(reference, prompt, answer["output_ids"], 0.8)
    assert values(answer) == pytest.approx(
        expected, abs=1e-5, rel=5e-6
    )  # measured: 2.9e-6 of a log-prob of -4


def test_truncation_keeps_samples_inside_top_k_and_top_p(server, reference, log_probs_of):
    prompt = prompt_of(12)
    for options in ({"top_k": 3}, {"top_p": 0.4}, {"min_p": 0.3}):
        output = server.generate(prompt, max_new_tokens=40, temperature=1.0, ignore_eos=True, **options)[
            "output_ids"
        ]
        table = log_probs_of(reference, prompt + output)
        for i, token in enumerate(output):
            probs = table[len(prompt) - 1 + i].exp()
            above = probs[probs > probs[token] + 1e-6]
            if "top_k" in options:
                assert len(above) < 3
            elif "top_p" in options:
                assert above.sum() < 0.4 + 1e-5
            else:
                assert probs[token] >= 0.3 * probs.max() - 1e-6


def test_greedy_equals_hugging_face_generate(server, reference):
    prompt = prompt_of(15, seed=3)
    answer = server.generate(prompt, max_new_tokens=60, temperature=0)
    expected = reference.generate(torch.tensor([prompt]), max_new_tokens=60, do_sample=False, pad_token_id=0)
    assert answer["output_ids"] == expected[0, len(prompt) :].tolist()


def test_greedy_log_probs_are_not_scaled(server, reference, sampled_log_probs):
    prompt = prompt_of(9)
    answer = server.generate(prompt, max_new_tokens=10, temperature=0, ignore_eos=True)
    assert values(answer) == pytest.approx(
        sampled_log_probs(reference, prompt, answer["output_ids"]), abs=1e-5
    )


def test_requests_of_all_lengths_in_one_batch_equal_single_requests(server):
    prompts = [prompt_of(length, seed=length) for length in (1, 2, 30, 63, 64, 65, 200, 255, 256, 300, 500)]

    def greedy(prompt: list[int]) -> dict:
        return server.generate(prompt, max_new_tokens=5 + len(prompt) % 40, temperature=0, ignore_eos=True)

    single = [greedy(prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as pool:
        together = list(pool.map(greedy, prompts))
    for one, batched in zip(single, together, strict=True):
        assert one["output_ids"] == batched["output_ids"]
        assert values(one) == pytest.approx(values(batched), abs=1e-5)


def test_a_sequence_stays_exact_while_it_grows_through_length_classes(server, reference, sampled_log_probs):
    prompt = prompt_of(240)
    answer = server.generate(prompt, max_new_tokens=320, temperature=1.0, ignore_eos=True)
    expected = sampled_log_probs(reference, prompt, answer["output_ids"])
    assert values(answer) == pytest.approx(expected, abs=2e-5)


def test_a_seed_reproduces_an_answer_in_any_batch(server):
    def seeded(_: object = None) -> list[int]:
        return server.generate(prompt_of(10), max_new_tokens=40, temperature=1.0, seed=11, ignore_eos=True)[
            "output_ids"
        ]

    def noise(seed: int) -> list[int]:
        prompt = prompt_of(20 + seed, seed)
        return server.generate(prompt, max_new_tokens=50, temperature=1.0, top_p=0.9, ignore_eos=True)[
            "output_ids"
        ]

    alone = seeded()
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(noise, seed) for seed in range(6)]
        beside = pool.submit(seeded).result()
        noises = [other.result() for other in others]
    assert beside == alone
    assert len({tuple(n) for n in noises}) == 6
    again = server.generate(
        prompt_of(10), max_new_tokens=40, temperature=1.0, sampling_seed=12, ignore_eos=True
    )
    assert again["output_ids"] != alone


def test_logit_bias_forces_and_forbids(server):
    prompt = prompt_of(8)
    forced = server.generate(prompt, max_new_tokens=5, temperature=1.0, logit_bias={"77": 1000.0})
    assert forced["output_ids"] == [77] * 5
    said = server.generate(prompt, max_new_tokens=20, temperature=0, ignore_eos=True)["output_ids"]
    bias = {str(said[0]): -1000.0}
    other = server.generate(prompt, max_new_tokens=20, temperature=0, ignore_eos=True, logit_bias=bias)
    assert said[0] not in other["output_ids"]


def test_penalties_equal_their_definition(server, reference):
    prompt, options = (
        prompt_of(8),
        {"frequency_penalty": 0.7, "presence_penalty": 0.4, "repetition_penalty": 1.3},
    )
    output = server.generate(prompt, max_new_tokens=25, temperature=0, ignore_eos=True, **options)[
        "output_ids"
    ]
    with torch.no_grad():
        table = reference(torch.tensor([prompt + output])).logits[0]
    for i, token in enumerate(output):
        logits = table[len(prompt) - 1 + i].clone()
        for seen in {*prompt, *output[:i]}:
            logits[seen] = logits[seen] / 1.3 if logits[seen] > 0 else logits[seen] * 1.3
        for said in set(output[:i]):
            logits[said] -= 0.7 * output[:i].count(said) + 0.4
        assert logits.argmax() == token


def test_samples_follow_the_model_distribution(server, reference, log_probs_of):
    prompt = prompt_of(6)

    def one(_: int) -> int:
        return server.generate(prompt, logprobs=False, max_new_tokens=1, temperature=1.0)["output_ids"][0]

    with ThreadPoolExecutor(16) as pool:
        counts = torch.bincount(torch.tensor(list(pool.map(one, range(600)))), minlength=320)
    expected = log_probs_of(reference, prompt)[-1].exp()
    top = expected.topk(5).indices
    assert torch.allclose(counts[top] / 600, expected[top], atol=0.08)


def test_prompt_scoring_matches_sglang(server, reference, log_probs_of):
    prompt = prompt_of(150)
    table = log_probs_of(reference, prompt)
    start = 100
    meta = server.generate(prompt, max_new_tokens=0, logprob_start_len=start, top_logprobs_num=2)["meta_info"]
    entries = meta["input_token_logprobs"]
    assert entries[0] == [None, prompt[start], None]
    assert [entry[1] for entry in entries] == prompt[start:]
    expected = [table[i - 1, prompt[i]].item() for i in range(start + 1, 150)]
    assert [entry[0] for entry in entries[1:]] == pytest.approx(expected, abs=1e-5)
    assert meta["input_top_logprobs"][0] is None
    assert meta["input_top_logprobs"][1][0][1] == table[start].argmax().item()
    assert meta["finish_reason"] == {"type": "length", "length": 0}
    assert meta["completion_tokens"] == 0 and meta["weight_versions"] == []


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_prompts_are_scored_at_the_requested_temperature(server, reference, log_probs_of, temperature):
    prompt = prompt_of(40)
    table = torch.log_softmax(log_probs_of(reference, prompt) / temperature, dim=-1)
    meta = server.generate(
        prompt,
        max_new_tokens=0,
        logprob_start_len=9,
        top_logprobs_num=2,
        input_logprob_temperature=temperature,
    )["meta_info"]
    assert meta["input_logprob_temperature"] == temperature
    expected = [table[i - 1, prompt[i]].item() for i in range(10, 40)]
    assert [entry[0] for entry in meta["input_token_logprobs"][1:]] == pytest.approx(expected, abs=1e-5)
    best = [entry[0] for entry in meta["input_top_logprobs"][1]]
    assert best == pytest.approx(table[9].topk(2).values.tolist(), abs=1e-5)


def test_no_prompt_log_probs_unless_asked(server):
    assert server.generate(prompt_of(5), max_new_tokens=2)["meta_info"]["input_token_logprobs"] == []


def test_top_and_selected_log_probs_of_the_output_are_returned(server, reference, log_probs_of):
    prompt = prompt_of(20)
    answer = server.generate(
        prompt,
        max_new_tokens=6,
        temperature=0.5,
        ignore_eos=True,
        top_logprobs_num=3,
        token_ids_logprob=[7, 5],
    )
    table = log_probs_of(reference, prompt + answer["output_ids"], 0.5)[len(prompt) - 1 : -1]
    values, ids = table.topk(3)
    meta = answer["meta_info"]
    assert [[e[1] for e in step] for step in meta["output_top_logprobs"]] == ids.tolist()
    assert torch.allclose(
        torch.tensor([[e[0] for e in s] for s in meta["output_top_logprobs"]]), values, atol=1e-5
    )
    chosen = torch.tensor([[e[0] for e in step] for step in meta["output_token_ids_logprobs"]])
    assert torch.allclose(chosen, table[:, [7, 5]], atol=1e-4)
