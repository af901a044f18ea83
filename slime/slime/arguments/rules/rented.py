"""Rejects settings that a rental service does not support; derives settings for a model at a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.run_folder.usage import read_prices
from claw_base.settings.declare import option
from slime.arguments.rules.distillation import spec_of
from slime.errors import ConfigError

if TYPE_CHECKING:
    from slime.flags import Arguments

DEFAULT_RANK = 32
TOGETHER = (
    "--train-backend {train} and --rollout-backend {rollout}: a model at a service is trained "
    "and sampled there; use rented for both"
)
OF_THE_SERVICE = "the service supports only the rank of an adapter; drop it"
NO_DISTRIBUTION = "a service returns log-probs only of the sampled tokens"
LACKING = {
    "lora_alpha": OF_THE_SERVICE,
    "lora_dropout": OF_THE_SERVICE,
    "lora_target_modules": OF_THE_SERVICE,
    "lora_modules_to_save": OF_THE_SERVICE,
    "load_in_4bit": OF_THE_SERVICE,
    "actor_num_gpus_per_node": "no GPU of this machine trains; set it to 0",
    "rollout_num_gpus": "no GPU of this machine serves; set it to 0",
    "prm_num_gpus": "no GPU of this machine judges; use --rented-judge to judge with the base model",
    "prm_teacher_num_gpus": "the base model at the service is the teacher; drop it",
    "rollout_external_engine_addrs": "external engines cannot sample from a model at a service; drop it",
    "entropy_coef": f"{NO_DISTRIBUTION}, so the entropy is unknown; drop it",
    "ref_update_interval": "the reference is the base model; drop it",
    "save_hf": "the weights stay at the service; drop it",
    "colocate": "no GPU of this machine is used; drop it",
}
MORE_THAN_POLICY = (
    "loss_spec_path", "custom_loss_function_path", "use_tis", "use_opsm", "get_mismatch_metrics", "eps_clip_c",
    "custom_pg_loss_reducer_function_path",
)  # fmt: skip


def prepare_rented(args: Arguments) -> None:
    """Sets the values for a model at a service, before the other rules. Raises ConfigError."""
    here = [name for name in (args.train_backend, args.rollout_backend) if name == "rented"]
    if not here:
        return
    if len(here) == 1 and not args.debug_rollout_only:
        raise ConfigError(TOGETHER.format(train=args.train_backend, rollout=args.rollout_backend))
    for name, why in LACKING.items():
        if vars(args)[name]:
            raise ConfigError(f"{option(name)} does not work with a rented model: {why}")
    if not args.rented_service:
        raise ConfigError("--rollout-backend rented needs --rented-service module:Class")
    args.use_lora, args.lora_rank = True, args.lora_rank or DEFAULT_RANK
    args.use_dynamic_batch_size, args.micro_batch_size = False, 1
    args.rented_model = args.rented_model or str(Path(args.hf_checkpoint).expanduser().resolve())
    if args.rented_prices:
        read_prices(args.rented_prices, args.rented_model)


def check_rented(args: Arguments) -> None:
    """Rejects losses that need more than a service provides, after the other rules. Raises ConfigError."""
    if args.train_backend != "rented":
        return
    if args.train_world_size != 1:
        raise ConfigError("--num-train-processes: a rented model needs one process; drop it")
    if args.update_weight_transport != "disk":
        raise ConfigError("--update-weight-transport: the weights stay at the service; drop it")
    if args.gate_engine not in ("auto", "serving"):
        raise ConfigError(f"--gate-engine {args.gate_engine}: the weights stay at the service; drop it")
    args.gate_engine = "serving"
    if args.advantage_estimator == "ppo":
        raise ConfigError("--advantage-estimator ppo needs a critic, which no service trains; use grpo")
    own = spec_of(args)
    if own is not None and own.teacher == "topk":
        raise ConfigError(
            f"--loss-spec-path {args.loss_spec_path} compares likely ids of each position, but "
            f"{NO_DISTRIBUTION}: use a loss with distillation of sampled tokens"
        )
    if own is not None and own.on_logits is not None:
        raise ConfigError(f"a custom loss on logits needs the whole distribution, but {NO_DISTRIBUTION}")
    if args.teacher_source == "trainer" and args.teacher_model not in ("base", "self"):
        raise ConfigError(
            "--teacher-model: at a service, the teacher is the base model or the policy itself; "
            "use base or self"
        )
    if args.teacher_guidance != 1:
        raise ConfigError(f"--teacher-guidance needs whole distributions, but {NO_DISTRIBUTION}; drop it")
    if args.ref_load and Path(args.ref_load).resolve() != Path(args.hf_checkpoint).resolve():
        raise ConfigError("--ref-load: the reference of a rented model is its base; drop it")
    if args.rented_loss != "exact":
        _check_one_pass(args)


def _check_one_pass(args: Arguments) -> None:
    """Checks that a loss computed by the service is only the policy loss."""
    asked = [name for name in MORE_THAN_POLICY if vars(args)[name]]
    asked += ["kl_loss_coef"] if args.use_kl_loss and args.kl_loss_coef else []
    if asked or args.loss_type != "policy_loss":
        more = option(asked[0]) if asked else f"--loss-type {args.loss_type}"
        raise ConfigError(
            f"--rented-loss {args.rented_loss} is only a policy loss, and {more} asks for more; use exact"
        )
    if args.advantage_estimator == "gspo":
        raise ConfigError("--advantage-estimator gspo needs ratios of whole answers; use --rented-loss exact")
    if (args.rented_loss == "cispo") != (args.advantage_estimator == "cispo"):
        raise ConfigError(
            f"--rented-loss {args.rented_loss} and --advantage-estimator {args.advantage_estimator} name two losses; "
            "cispo needs cispo for both"
        )
    args.use_rollout_logprobs = True
    if args.rented_loss == "importance_sampling":
        args.eps_clip, args.eps_clip_high = 1.0, 1e9
