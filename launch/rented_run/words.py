"""Converts the flags of a run on rented GPUs into the driver's command line."""

from __future__ import annotations

from pathlib import Path

from rented_run.flags import METHODS, RentedFlags, folder_of
from slime.errors import ConfigError, unknown_name
from slime.rented.service import LOSSES

LEASE = [
    "--rollout-function-path", "openclaw.trainer_hooks.lease.generate_rollout",
    "--on-weights-live-path", "openclaw.trainer_hooks.lease.on_weights_live",
    "--disable-rollout-global-dataset", "--service-path", "openclaw.trainer_hooks.services.start",
    "--reward-key", "score", "--keep-token-records", "8",
]  # fmt: skip
TEACHER = ["--teacher-source", "trainer", "--teacher-model", "base"]
COMBINED = [
    "--method-path", "openclaw_combine.combine:sample_from_judged_turn",
    "--loss-spec-path", "openclaw_combine.loss:combine",
    "--disable-rewards-normalization", *TEACHER,
]  # fmt: skip
OF_METHOD = {
    "rl": [
        "--method-path", "openclaw_rl.binary_rl:sample_from_judged_turn", "--advantage-estimator", "grpo",
        "--disable-rewards-normalization",
    ],
    "opd": [
        "--method-path", "openclaw_opd.opd:sample_from_judged_turn",
        "--advantage-estimator", "on_policy_distillation", *TEACHER,
    ],
    "combine": COMBINED,
    "hybrid": [
        *COMBINED, "--custom-reward-post-process-path", "openclaw.methods.rewards.compare_in_batch",
        "--replay-steps", "2", "--anchor-share", "2",
    ],
}  # fmt: skip
GATE = [
    "--gate", "--on-weights-rejected-path", "openclaw.trainer_hooks.rejection.on_weights_rejected",
    "--gate-samples-path", "openclaw.trainer_hooks.gate_samples.gate_samples",
]  # fmt: skip


def run_dir(flags: RentedFlags, cloud: str, root: Path) -> Path:
    if flags.record_dir:
        return Path(flags.record_dir).expanduser().resolve()
    return root / f"runs/{cloud}_{flags.method}"


def driver_words(flags: RentedFlags, service: str, url: str, folder: Path, repository: str) -> list[str]:
    """Returns the arguments of slime/train_async.py.

    Args:
        service: client class of the service, module:Class.
        url: base URL of the service; "": the service's default.
        folder: run folder.
        repository: name of the base model on the hub.

    Raises:
        ConfigError: an unknown name, or an option that the service does not support.
    """
    check(flags, folder)
    words = [
        "--hf-checkpoint",
        folder_of(flags.model_path or repository, repository),
        "--run-dir",
        str(folder),
        "--save",
        str(folder / "checkpoints"),
    ]
    words += ["--train-backend", "rented", "--backend", "rented", "--rented-service", service]
    words += ["--rented-model", flags.model_name, "--lora-rank", str(flags.lora_rank)]
    words += ["--rented-url", url] if url else []
    words += ["--rented-stream-tokens", str(flags.stream_tokens)] if flags.stream_tokens else []
    words += [*LEASE, *OF_METHOD[flags.method], *loss_words(flags)]
    words += ["--rl-buffer-dir", str(folder / "buffer"), "--batch-timeout", "30"]
    words += ["--rollout-batch-size", str(flags.batch_size), "--num-rollout", str(flags.max_steps)]
    words += ["--save-interval", str(flags.save_interval), "--train-epochs", str(flags.train_epochs)]
    words += ["--lr", f"{flags.learning_rate:g}", "--weight-decay", "0"]
    words += ["--host", flags.proxy_host, "--port", str(flags.proxy_port)]
    words += ["--served-model-name", flags.served_model_name, "--temperature", f"{flags.temperature:g}"]
    words += judge_words(flags)
    words += ["--rented-prices", flags.prices] if flags.prices else []
    words += ["--max-cost", f"{flags.max_cost:g}"] if flags.max_cost else []
    words += GATE if flags.gate else []
    if flags.wandb_project and not flags.wandb_disabled:
        words += ["--use-wandb", "--wandb-project", flags.wandb_project]
    return words + resume_words(flags)


def check(flags: RentedFlags, folder: Path) -> None:
    """Raises ConfigError if flags contradict each other or contain an unknown name."""
    if flags.method not in METHODS:
        raise unknown_name("method", flags.method, METHODS)
    if flags.loss_fn not in LOSSES:
        raise unknown_name("--loss-fn", flags.loss_fn, LOSSES)
    if flags.teacher_model_name not in ("", flags.model_name):
        raise ConfigError(
            f"--teacher-model-name {flags.teacher_model_name}: the teacher reads the student's ids, so it is the base "
            "model of the same run; drop it"
        )
    if flags.resume and not (folder / "checkpoints" / "checkpoint-latest").exists():
        raise ConfigError(
            f"--resume: {folder}/checkpoints has no checkpoint to resume from; drop --resume to start a new run"
        )


def loss_words(flags: RentedFlags) -> list[str]:
    """Returns the flags of the loss. The service computes a plain policy loss in one pass; other losses are computed on
    this machine."""
    words = ["--eps-clip", f"{flags.eps_clip:g}", "--eps-clip-high", f"{flags.eps_clip_high:g}"]
    if flags.kl_loss_coef:
        words += [
            "--use-kl-loss",
            "--kl-loss-coef",
            f"{flags.kl_loss_coef:g}",
            "--kl-loss-type",
            "low_var_kl",
        ]
    if flags.method in ("combine", "hybrid"):
        words += ["--combine-w-opd", f"{flags.w_opd:g}", "--combine-w-rl", f"{flags.w_rl:g}"]
    alone = flags.method in ("rl", "opd") and not flags.kl_loss_coef
    if flags.loss_fn == "cispo":
        if flags.method != "rl":
            raise ConfigError(
                f"--loss-fn cispo with --method {flags.method}: its loss is ppo's; use ppo, or method rl"
            )
        words += ["--advantage-estimator", "cispo"]
    elif flags.loss_fn == "importance_sampling" and not alone:
        raise ConfigError(
            "--loss-fn importance_sampling is only a policy loss: use method rl or opd, and --kl-loss-coef 0"
        )
    return words + (["--rented-loss", flags.loss_fn] if alone else [])


def judge_words(flags: RentedFlags) -> list[str]:
    words = [
        "--num-judge-workers",
        "1",
        "--prm-m",
        str(flags.prm_m),
        "--prm-temperature",
        f"{flags.prm_temperature:g}",
    ]
    words += ["--prm-max-new-tokens", str(flags.prm_max_tokens)]
    words += ["--eval-mode", str(int(flags.eval_mode))] if flags.method == "opd" else []
    if flags.judge_backend == "engine":
        return [*words, "--rented-judge"]
    return [*words, "--judge-backend", flags.judge_backend]


def resume_words(flags: RentedFlags) -> list[str]:
    place = flags.resume_from_ckpt
    if not place:
        return []
    is_address = "://" in place or "/" not in place
    return ["--rented-state" if is_address else "--load", place]
