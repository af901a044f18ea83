"""Tests flags of optimizer, critic, precision and memory: each has an effect or is rejected with the reason."""

from __future__ import annotations

import math
from typing import Any

import pytest

from claw_base.settings.rules import check_flags
from slime.arguments import Arguments
from slime.arguments.rules.validation import check_algorithm, check_lora, check_optimizer, switch_adapters
from slime.errors import ConfigError
from slime.training.core.learner import learning_rate


def checked(**changes: object) -> Arguments:
    values: dict[str, Any] = {"n_samples_per_prompt": 4, "rollout_batch_size": 2, "global_batch_size": 4}
    args = Arguments(**(values | changes))
    switch_adapters(args)
    check_flags(args)
    check_algorithm(args)
    check_lora(args)
    check_optimizer(args)
    return args


@pytest.mark.parametrize(
    ("style", "share"),
    [
        ("linear", lambda r: 1 - r),
        ("cosine", lambda r: (1 + math.cos(math.pi * r)) / 2),
        ("exponential", lambda r: 2 * 0.5**r - 1),
        ("minus_sqrt", lambda r: 1 - math.sqrt(r)),
    ],
)
def test_wsd_warms_up_stays_constant_and_decays_in_its_last_steps(style: Any, share: Any) -> None:
    args = checked(
        lr=1.0, min_lr=0.1, lr_decay_style="WSD", lr_decay_iters=20, lr_wsd_decay_iters=8,
        lr_wsd_decay_style=style, lr_warmup_fraction=0.2,
    )  # fmt: skip
    found = [learning_rate(args, step) for step in range(24)]
    expected = [(step + 1) / 4 for step in range(4)] + [1.0] * 8
    expected += [0.1 + 0.9 * share(step / 8) for step in range(8)] + [0.1] * 4
    assert found == pytest.approx(expected)
    assert learning_rate(args, 16, highest=0.01) == pytest.approx(0.01 * found[16])


def test_inverse_square_root_decays_from_the_end_of_the_warm_up_to_the_minimum() -> None:
    args = checked(lr=1.0, min_lr=0.3, lr_decay_style="inverse-square-root", lr_warmup_iters=4)
    found = [learning_rate(args, step) for step in (0, 3, 4, 15, 99)]
    assert found == pytest.approx([0.25, 1.0, math.sqrt(4 / 5), 0.5, 0.3])


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"lambd": 0.9}, "ppo"),
        ({"advantage_estimator": "ppo", "lambd": 1.5}, "--lambd"),
        ({"advantage_estimator": "ppo", "value_clip": 0.0}, "--value-clip"),
        ({"advantage_estimator": "ppo", "custom_advantage_function_path": "x"}, "critic"),
        ({"ref_update_interval": 2}, "reference model"),
        ({"use_rollout_logprobs": True, "use_tis": True}, "--use-tis"),
        ({"fsdp_cpu_offload": True}, "trains on the CPU"),
        ({"load_in_4bit": True}, "trains on the CPU"),
        ({"attn_implementation": "flash_attention_2"}, "needs a GPU"),
        ({"bf16": True, "fp32": True, "actor_num_gpus_per_node": 1}, "--bf16 and --fp32 are exclusive"),
        ({"freeze_params_name_list": ["a"], "only_train_params_name_list": ["b"]}, "exclude each other"),
        ({"freeze_params_name_list": ["a"], "use_lora": True}, "LoRA"),
        ({"log_probs_chunk_size": 0}, "--log-probs-chunk-size"),
        ({"lr_decay_style": "WSD", "lr_decay_iters": 5, "lr_wsd_decay_iters": 6}, "--lr-wsd-decay-iters"),
        ({"lr_wsd_decay_iters": 6}, "need --lr-decay-style WSD"),
        ({"lr_warmup_fraction": 0.5, "lr_warmup_iters": 3, "lr_decay_iters": 9}, "are exclusive"),
        (
            {"lr_decay_style": "linear", "lr_warmup_fraction": 0.9, "lr_decay_iters": 4},
            "--lr-warmup-fraction 0.9 leaves no steps for the decay, which ends after 4 steps",
        ),
    ],
)
def test_flags_that_contradict_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        checked(**changes)


def test_four_bit_loading_enables_lora_on_a_gpu() -> None:
    assert checked(load_in_4bit=True, actor_num_gpus_per_node=1).use_lora
