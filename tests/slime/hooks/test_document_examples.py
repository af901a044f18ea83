"""Tests that code in users' documents runs as printed: a custom loss, a custom reward model, a new method's flags."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForSequenceClassification

from slime.arguments import Arguments, parse_args
from slime.contracts import check
from slime.losses import load_custom_loss, sample_loss
from slime.rollout.rm_hub import async_rm
from slime.types import Sample
from tests import ROOT
from tests.fakes.fixtures import MakeRewardArgs

EXAMPLES = ROOT / "slime" / "examples"
CUSTOM_LOSS = '''
# my_method/custom_loss.py
import torch
from typing import Dict, Any

def compute_loss(
    policy_logits: torch.Tensor,
    reference_logits: torch.Tensor,
    rewards: torch.Tensor,
    advantages: torch.Tensor,
    config: Dict[str, Any]
) -> torch.Tensor:
    """
    Custom GRPO-style loss with clipped surrogate objective.
    """
    # Log-ratio between policy and reference
    log_ratio = policy_logits - reference_logits
    ratio = torch.exp(log_ratio)

    clip_range = config.get("clip_range", 0.2)

    # PPO-style clipped objective
    clipped = torch.clamp(ratio, 1 - clip_range, 1 + clip_range)
    loss = -torch.min(ratio * advantages, clipped * advantages).mean()

    # KL penalty
    kl_coeff = config.get("kl_coeff", 0.01)
    kl_penalty = kl_coeff * log_ratio.mean()

    return loss + kl_penalty
'''
CUSTOM_RM = '''
# my_method/custom_rm.py
from transformers import AutoModelForSequenceClassification, AutoTokenizer
import torch

class CustomPRM:
    def __init__(self, model_path: str):
        self.tokenizer = AutoTokenizer.from_pretrained(model_path)
        self.model = AutoModelForSequenceClassification.from_pretrained(
            model_path, torch_dtype=torch.bfloat16
        )
        self.model.eval()

    def score(self, prompt: str, response: str, next_state: str) -> float:
        """
        Score a turn given prompt, response, and next-state feedback.
        """
        combined = f"Prompt: {prompt}\\nResponse: {response}\\nOutcome: {next_state}"
        inputs = self.tokenizer(combined, return_tensors="pt", truncation=True, max_length=2048)

        with torch.no_grad():
            logits = self.model(**inputs).logits

        # Binary reward: positive class probability
        return torch.softmax(logits, dim=-1)[0, 1].item()


def get_reward_model(config):
    return CustomPRM(config["prm_model_path"])
'''
NEW_METHOD = (
    "--model-path {model} --custom-loss-function-path my-new-method/custom_loss.py --save-interval 50 --save-dir {save} "
    "--rollout-batch-size 32 --num-rollouts-per-prompt 4 --lr 1e-6 --weight-decay 0.01"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Creates the files that the arithmetic example starts from."""
    folder = tmp_path_factory.mktemp("arithmetic")
    make = EXAMPLES / "arithmetic" / "make.py"
    subprocess.run([sys.executable, str(make), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture
def reward_model(made: Path, tmp_path: Path) -> str:
    from transformers import PreTrainedTokenizerFast

    torch.set_num_threads(1)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(made / "model")
    shape: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "head_dim": 8,
    }
    shape |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": tokenizer.pad_token_id}
    config = Qwen3Config(vocab_size=len(tokenizer), num_labels=2, **shape)
    Qwen3ForSequenceClassification(config).save_pretrained(tmp_path / "prm")
    tokenizer.save_pretrained(tmp_path / "prm")
    return str(tmp_path / "prm")


def test_the_documented_loss_runs_as_a_file_with_the_stated_result(tmp_path: Path) -> None:
    file = tmp_path / "my_method" / "custom_loss.py"
    file.parent.mkdir()
    file.write_text(CUSTOM_LOSS)
    assert "was called" in check("custom_loss_function_path", str(file))
    function, kind = load_custom_loss(str(file))
    assert kind == "sample"
    policy, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -2.0])
    loss = sample_loss(function, {}, policy, reference, torch.tensor(1.0), torch.tensor([2.0, -1.0]))
    assert float(loss) == pytest.approx(-(1.2 * 2 - 1) / 2 + 0.01 * 0.25, abs=1e-6)


async def test_the_documented_reward_model_runs_as_a_file(
    tmp_path: Path, reward_model: str, reward_args: MakeRewardArgs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_method").mkdir()
    (tmp_path / "my_method" / "custom_rm.py").write_text(CUSTOM_RM)
    monkeypatch.chdir(tmp_path)
    args = reward_args(custom_rm_path="./my_method/custom_rm.py", prm_model_path=reward_model)
    args.rollout_reward_timeout = 60.0
    sample = Sample(
        prompt="2+2=", response="4", label="4", metadata={"next_state": "User accepted the change"}
    )
    first = await async_rm(args, sample)
    assert isinstance(first, float) and 0 < first < 1
    assert await async_rm(args, sample) == first


def test_the_documented_flags_of_a_new_method_are_accepted(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my-new-method").mkdir()
    (tmp_path / "my-new-method" / "custom_loss.py").write_text(CUSTOM_LOSS)
    monkeypatch.chdir(tmp_path)
    words = NEW_METHOD.format(model=made / "model", save=tmp_path / "kept").split()
    args = parse_args(words, env={"DATA_PATH": str(made / "prompts.jsonl")})
    assert (args.loss_type, args.n_samples_per_prompt, args.save_interval) == ("custom_loss", 4, 50)
    assert args.save == str(tmp_path / "kept")


def test_the_example_of_a_new_method_keeps_its_contracts() -> None:
    folder = EXAMPLES / "my_method"
    args: Any = Arguments()
    args.pull = 0.1
    assert "was called" in check("custom_loss_function_path", str(folder / "custom_loss.py"), args)
