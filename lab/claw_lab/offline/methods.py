"""The compared methods, configured as by a launch script, and the settings that a trial may change."""

from __future__ import annotations

from dataclasses import dataclass, field

from claw_lab import MODEL

LEARNING_RATE = 3e-3
BATCH = 4
KL = 0.1
ADAM_EPSILON = 3e-3
"""Far above the root of the second moment (about 2e-4 here), so that a step is proportional to the gradient: with
Adam's usual 1e-8 every weight moves by the learning rate, even if its gradient is only noise, and arithmetic is lost.
"""


@dataclass(frozen=True)
class Method:
    """A training method of the comparison.

    Attributes:
        hook: makes samples of judged turns.
        flags: of the trainer; None if nothing is trained.
        votes: of the judge for each turn; each may give a hint.
        remembers: whether hints are added to every prompt.
        lr, batch, kl: defaults of a trial.
        compares: whether rewards are normalised within their batch if `flags` select no other way.
        per_token: whether every token has the same weight, instead of every reply.
    """

    name: str
    title: str
    hook: str
    flags: tuple[str, ...] | None
    votes: int = 1
    remembers: bool = False
    lr: float = LEARNING_RATE
    batch: int = BATCH
    kl: float = KL
    compares: bool = True
    per_token: bool = True


_POLICY = ("--advantage-estimator", "grpo", "--disable-rewards-normalization", "--eps-clip-high", "0.28")
_TOKEN_OPD = ("--advantage-estimator", "on_policy_distillation", "--teacher-source", "trainer", *_POLICY[-2:])
_TOPK_OPD = (
    "--loss-spec-path",
    "openclaw_opd.loss:opd_topk",
    "--distill-topk",
    "50",
    "--disable-rewards-normalization",
)
_SELECT = (
    *(
        "--loss-spec-path",
        "openclaw_combine.loss:topk_select",
        "--distill-topk",
        "20",
        "--hint-selection",
        "sequence_optimal",
    ),
    *("--hint-m", "3", "--topk-adv-diff-clip", "5.0", "--no-topk-plain-teacher"),
    *("--topk-w-opd", "12.0", "--topk-w-rl", "9.0", "--replay-steps", "10", "--anchor-share", "1"),
    *("--anchor-wishes", str(MODEL.with_name("wishes.txt"))),
    *("--standing-wishes", "people", "--standing-liked", "--teacher-guidance", "1.25"),
    *("--custom-reward-post-process-path", "openclaw.trainer_hooks.credit.compare_with_person"),
)
_GPU = (
    *("--loss-spec-path", "openclaw_combine.loss:topk_select", "--distill-topk", "4"),
    *("--hint-selection", "sequence_optimal", "--hint-m", "3", "--topk-adv-diff-clip", "1.0"),
    *("--weight-decay", "0.1"),
)
"""The flags of the hybrid's scripts for GPUs; learning rate and Adam's epsilon are tiny-claw's."""

METHODS = {
    method.name: method
    for method in (
        Method("base", "no training", "openclaw_rl.binary_rl:sample_from_judged_turn", None),
        Method(
            "memory",
            "no training, hints in the prompt",
            "openclaw_opd.opd:sample_from_judged_turn",
            None,
            remembers=True,
        ),
        Method("binary_rl", "Binary RL", "openclaw_rl.binary_rl:sample_from_judged_turn", _POLICY),
        Method("opd", "OPD, sampled tokens", "openclaw_opd.opd:sample_from_judged_turn", _TOKEN_OPD),
        Method("opd_topk", "OPD, top-K", "openclaw_opd.opd_topk:sample_from_judged_turn", _TOPK_OPD),
        Method(
            "combine",
            "combine",
            "openclaw_combine.combine:sample_from_judged_turn",
            (*_POLICY, "--loss-spec-path", "openclaw_combine.loss:combine"),
        ),
        Method(
            "topk_select",
            "hybrid select",
            "openclaw_combine.topk_select:sample_from_judged_turn",
            (*_POLICY, *_SELECT),
            votes=3,
            lr=2e-3,
        ),
        Method(
            "topk_select_gpu",
            "hybrid select, flags of the GPU scripts",
            "openclaw_combine.topk_select:sample_from_judged_turn",
            (*_POLICY, *_GPU),
            votes=3,
            lr=2e-3,
            batch=16,
            kl=0.0,
            compares=False,
            per_token=False,
        ),
    )
}


@dataclass(frozen=True)
class Setting:
    """A method with all settings of a trial.

    Attributes:
        lr, batch, kl: learning rate, samples for each update, KL to the first weights; None: the method's.
        adam_eps: Adam's epsilon.
        per_token: whether every token has the same weight, instead of every reply.
        behind: number of versions by which serving lags, since a real loop trains meanwhile.
        memory: whether preferences are added to prompts until the weights contain them (--memory).
        extra: further flags of the driver, such as LoRA's.
    """

    method: Method
    lr: float | None = None
    batch: int | None = None
    kl: float | None = None
    adam_eps: float = ADAM_EPSILON
    per_token: bool = True
    behind: int = 0
    memory: bool = False
    extra: tuple[str, ...] = field(default=())

    def flags(self, model_path: str, run_dir: str, seed: int) -> list[str]:
        """Returns the command line of the driver."""
        kl = self.method.kl if self.kl is None else self.kl
        held = ["--use-kl-loss", "--kl-loss-coef", str(kl), "--kl-loss-type", "low_var_kl"] if kl else []
        compared = ["--custom-reward-post-process-path", "openclaw.methods.rewards.compare_in_batch"]
        return [
            *("--hf-checkpoint", model_path, "--run-dir", run_dir, "--rl-buffer-dir", run_dir),
            "--disable-rollout-global-dataset",
            *(["--calculate-per-token-loss"] if self.per_token and self.method.per_token else []),
            *("--rollout-function-path", "openclaw.trainer_hooks.lease.generate_rollout"),
            *("--on-weights-live-path", "openclaw.trainer_hooks.lease.on_weights_live"),
            *("--service-path", "openclaw.trainer_hooks.services.start", "--method-path", self.method.hook),
            *("--rollout-batch-size", str(self.batch or self.method.batch), "--reward-key", "score"),
            *(compared if self.method.compares else []),
            *(
                "--lr",
                str(self.lr or self.method.lr),
                "--weight-decay",
                "0.0",
                "--adam-beta1",
                "0.9",
                "--adam-beta2",
                "0.98",
            ),
            *("--adam-eps", str(self.adam_eps), "--seed", str(seed)),
            *(self.method.flags or _POLICY),
            *held,
            *(["--memory"] if self.memory else []),
            *self.extra,
        ]
