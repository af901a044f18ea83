"""Tests each hook of the table: a plug-in that keeps its contract, and violations that are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from slime.contracts import check
from slime.contracts.__main__ import main
from slime.errors import ConfigError
from slime.hooks import HOOKS, load_path

GOOD = """
import torch

def generate_rollout(args, rollout_id, data_source, evaluation=False):
    raise AssertionError("not called by a contract test")

async def generate(args, sample, sampling_params):
    raise AssertionError("not called by a contract test")

async def reward(args, sample, **kw):
    return float(sample.response == sample.label)

def dynamic_filter(args, group, **kw):
    return len({sample.reward for sample in group}) > 1

def buffer_filter(args, rollout_id, buffer, num_samples):
    return [buffer.pop() for _ in range(min(num_samples, len(buffer)))]

def sample_filter(args, groups):
    for group in groups:
        group[0].remove_sample = True

def process_all_samples(args, all_groups, get_samples):
    assert len(get_samples(2)) == 2

async def sample_hook(args, sample, *, rollout_id=None, evaluation=False):
    sample.metadata["seen"] = rollout_id
    return sample

class DataSource:
    def __init__(self, args):
        from slime.contracts.examples import example_group
        self.make, self.kept = example_group, []

    def get_samples(self, count):
        return [self.kept.pop() if self.kept else self.make() for _ in range(count)]

    def add_samples(self, groups):
        self.kept += groups

    def save(self, rollout_id): ...
    def load(self, rollout_id): ...

def post_process_rewards(args, samples):
    raw = [sample.reward for sample in samples]
    return raw, [value - sum(raw) / len(raw) for value in raw]

def convert_samples_to_train_data(args, samples):
    return {
        "tokens": [sample.tokens for sample in samples],
        "response_lengths": [sample.response_length for sample in samples],
        "rewards": [sample.reward for sample in samples],
        "loss_masks": [torch.ones(sample.response_length, dtype=torch.int) for sample in samples],
    }

def log_rollout(rollout_id, args, samples, extra_metrics, rollout_time):
    return True

def log_eval_rollout(rollout_id, args, data, extra_metrics):
    return False

def postprocess_rollout_data(args, rollout_id, rollout_data):
    rollout_data["advantages"] = [values * 2 for values in rollout_data["advantages"]]

def loss_spec(args):
    from slime.losses import Component, LossSpec, policy_component, topk_divergence
    parts = Component("policy", 1.0, policy_component(args)), Component("opd", 0.5, topk_divergence)
    return LossSpec(parts, needs_advantages=True, distils="topk")

def compute_loss(policy_logits, reference_logits, rewards, advantages, config):
    return -(torch.exp(policy_logits - reference_logits) * advantages).mean()

def compute_advantages(args, rollout_data):
    lengths = zip(rollout_data["response_lengths"], rollout_data["rewards"])
    rollout_data["advantages"] = [torch.full((length,), reward) for length, reward in lengths]

def custom_tis(*, pg_loss, loss_masks, **others):
    return pg_loss * 0.5, loss_masks, {}

def pg_loss_reducer(total_lengths, response_lengths, loss_masks, per_token):
    return lambda values: (values * torch.cat(loss_masks)).sum() / 100

def after_weights_are_written(args, version_dir, rollout_engines): ...

def start(args, endpoints):
    return [{"name": "tool", "role": "tool", "command": ["sleep", "1"], "url": None}]

def on_weights_live(args, rollout_id, version, checkpoint): ...

def gate_samples(args, rollout_id, version): return []

def on_weights_rejected(args, rollout_id, version, rejection): ...
"""
BAD = """
import torch

def two(a, b): ...
def one(a): ...
def reward(args, sample): return "good"
def drops(args, group): return "yes"
def keeps_what_it_takes(args, rollout_id, buffer, num_samples): return buffer[:num_samples]
def returns(args, groups): return groups
def breaks(args, all_groups, get_samples): all_groups[0][0].loss_mask = [1]
def no_sample(args, sample, *, rollout_id=None, evaluation=False): return 5
class Empty:
    def __init__(self, args): ...
def uneven(args, samples): return [1.0], [1.0]
def unknown_key(args, samples): return {"tokens": [[1]], "response_lengths": [1], "colour": ["red"]}
def number(rollout_id, args, samples, extra_metrics, rollout_time): return 3
def number_too(rollout_id, args, data, extra_metrics): return 3
def short(args, rollout_id, rollout_data): rollout_data["advantages"] = [torch.ones(1)]
def no_spec(args): return "mean squared error"
def detached(policy_logits, reference_logits, rewards, advantages, config): return torch.tensor(1.0)
def forgets(args, rollout_data): ...
def two_values(*, pg_loss, loss_masks, **others): return pg_loss, loss_masks
def no_function(total_lengths, response_lengths, loss_masks, per_token): return 1.0
def raises(args, version_dir, rollout_engines): raise OSError("disk full")
def no_command(args, endpoints): return [{"name": "tool"}]
"""
BROKEN = [
    ("rollout_function_path", "two", "must be f(args, rollout_id, data_source, evaluation=False)"),
    ("eval_function_path", "one", "must be f(args, rollout_id"),
    ("custom_generate_function_path", "two", "async f(args, sample, sampling_params"),
    ("custom_rm_path", "reward", "returned 'good', not a finite number"),
    ("dynamic_sampling_filter_path", "drops", "must be a bool"),
    ("buffer_filter_path", "keeps_what_it_takes", "left a group in the buffer"),
    ("rollout_sample_filter_path", "returns", "must return nothing"),
    ("rollout_all_samples_process_path", "breaks", "loss_mask has 1 entries"),
    ("rollout_sample_hook_path", "no_sample", "must be a Sample or None"),
    ("data_source_path", "Empty", "without get_samples"),
    ("custom_reward_post_process_path", "uneven", "1 rewards for 6 samples"),
    ("custom_convert_samples_to_train_data_path", "unknown_key", "unknown keys: colour"),
    ("custom_rollout_log_function_path", "number", "must be a bool"),
    ("custom_eval_rollout_log_function_path", "number_too", "must be a bool"),
    ("rollout_data_postprocess_path", "short", "one tensor of response_length numbers"),
    ("loss_spec_path", "no_spec", "returned a str; it must return a LossSpec"),
    ("custom_loss_function_path", "detached", "does not depend on the policy"),
    ("custom_advantage_function_path", "forgets", "must set rollout_data['advantages']"),
    ("custom_tis_function_path", "two_values", "must return (pg_loss, loss_masks, metrics)"),
    ("custom_pg_loss_reducer_function_path", "no_function", "must be a function"),
    ("custom_update_weight_post_write_path", "raises", "raised OSError: disk full"),
    ("service_path", "no_command", "missing"),
    ("on_weights_live_path", "two", "must be f(args, rollout_id, version, checkpoint)"),
    ("gate_samples_path", "two", "must be f(args, rollout_id, version)"),
    ("on_weights_rejected_path", "two", "must be f(args, rollout_id, version, rejection)"),
]
ACTING = [name for name, hook in HOOKS.items() if hook.refused is None]


@pytest.fixture
def good(tmp_path: Path) -> str:
    (tmp_path / "good.py").write_text(GOOD)
    return str(tmp_path / "good.py")


@pytest.mark.parametrize("name", ACTING)
def test_a_plugin_with_the_default_name_keeps_the_contract(name: str, good: str) -> None:
    path = f"{good}:reward" if name == "custom_rm_path" else good
    assert check(name, path).startswith("takes ")


@pytest.mark.parametrize(("name", "attr", "complaint"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_broken_contract_is_reported(name: str, attr: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    with pytest.raises(ConfigError) as caught:
        check(name, f"{tmp_path}/bad.py:{attr}")
    assert complaint in str(caught.value)


WAITING = """
async def dynamic_filter(args, group): return True
async def log_rollout(rollout_id, args, samples, extra_metrics, rollout_time): return True
async def get_reward_model(config): return None
"""


@pytest.mark.parametrize(
    "name", ["dynamic_sampling_filter_path", "custom_rollout_log_function_path", "custom_rm_path"]
)
def test_an_async_function_is_rejected_for_a_synchronous_hook(name: str, tmp_path: Path) -> None:
    """Its coroutine would count as a true value."""
    (tmp_path / "waiting.py").write_text(WAITING)
    with pytest.raises(ConfigError, match="is async and has parameters"):
        load_path(name, str(tmp_path / "waiting.py"))


def test_every_hook_has_a_broken_example() -> None:
    assert [row[0] for row in BROKEN] == ACTING


@pytest.mark.parametrize("name", [name for name in HOOKS if name not in ACTING])
def test_hooks_of_another_backend_are_rejected_with_the_reason(name: str, good: str) -> None:
    with pytest.raises(ConfigError, match=r"Megatron|router"):
        check(name, good)


def test_the_command_checks_all_given_hooks(
    good: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    fine = ["--custom-rm-path", f"{good}:reward", "--rollout-sample-hook-path", good, "--lr", "1"]
    assert main(fine) == 0
    assert capsys.readouterr().out.count("ok ") == 2
    assert (
        main(["--custom-rm-path", f"{tmp_path}/bad.py:reward", "--dynamic-sampling-filter-path", good]) == 1
    )
    told = capsys.readouterr().out
    assert (told.count("BROKEN"), told.count("ok ")) == (1, 1)
    assert main([]) == main(["--no-such-flag"]) == 2
