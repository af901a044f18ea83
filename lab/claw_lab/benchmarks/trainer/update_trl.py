"""The part of `update_vs_trl.py` that trains with TRL; it runs in a separate environment and imports only `memory`
from this repository."""

import json
import sys
import time

import torch
from datasets import Dataset
from memory import PeakMemory
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def batch_of(samples):
    """Returns the tensors of TRL's own generation: prompts padded on the left, responses on the right."""
    longest = {part: max(len(s[part]) for s in samples) for part in ("prompt", "response")}
    rows = {name: [] for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")}
    for s in samples:
        prompt, response = s["prompt"], s["response"]
        left, right = longest["prompt"] - len(prompt), longest["response"] - len(response)
        rows["prompt_ids"].append([0] * left + prompt)
        rows["prompt_mask"].append([0] * left + [1] * len(prompt))
        rows["completion_ids"].append(response + [0] * right)
        rows["completion_mask"].append([1] * len(response) + [0] * right)
    batch = {name: torch.tensor(values) for name, values in rows.items()}
    rewards = torch.tensor([s["reward"] for s in samples])
    batch["advantages"] = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
    batch["num_items_in_batch"] = batch["completion_mask"].sum()
    return batch


class WithoutGeneration(GRPOTrainer):
    """TRL's trainer, which updates on prepared samples."""

    def _prepare_inputs(self, generation_batch):
        return self.batch


class Clock(TrainerCallback):
    """Waits for a command before each step, and measures the step."""

    def __init__(self):
        self.memory, self.left, self.seconds = PeakMemory(), None, []

    def on_step_begin(self, args, state, control, **_):
        while not self.left:
            if self.left is not None:
                print(json.dumps({"update": self.seconds, "peak_mb": self.memory.rise_mb()}), flush=True)
            line = sys.stdin.readline()
            if not line:
                raise SystemExit
            self.left, self.seconds = json.loads(line)["updates"], []
        self.started, self.worked = time.perf_counter(), time.process_time()

    def on_step_end(self, args, state, control, **_):
        self.seconds.append((time.perf_counter() - self.started, time.process_time() - self.worked))
        self.left -= 1


def main():
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(settings["threads"])
    samples = settings["samples"]
    config = GRPOConfig(
        output_dir=settings["folder"] + "/trl",
        per_device_train_batch_size=len(samples),
        gradient_accumulation_steps=1,
        num_generations=len(samples),
        learning_rate=1e-5,
        lr_scheduler_type="constant",
        loss_type="grpo",
        beta=0.0,
        temperature=1.0,
        max_steps=1_000_000,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )
    clock = Clock()
    trainer = WithoutGeneration(
        model=AutoModelForCausalLM.from_pretrained(
            settings["model"], dtype=torch.float32, trust_remote_code=False
        ),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["w2"] * 64}),
        processing_class=AutoTokenizer.from_pretrained(settings["model"], trust_remote_code=False),
        callbacks=[clock],
    )
    trainer.batch = batch_of(samples)
    trainer.create_optimizer()

    def keep_gradients(optimizer, *_):
        handle.remove()
        gradients = {n: p.grad.clone() for n, p in trainer.model.named_parameters() if p.grad is not None}
        save_file(gradients, settings["folder"] + "/trl.safetensors")

    handle = trainer.optimizer.register_step_pre_hook(keep_gradients)
    trainer.train()


if __name__ == "__main__":
    main()
