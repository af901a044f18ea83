"""The first batch is trained with the flags of the launch script, whatever these are."""

from __future__ import annotations

from claw_lab.benchmarks.learning.first_batch import SCRIPT, script_flags, setting_of, words_of
from slime.arguments import parse_args
from tests import MODEL


def test_a_scripts_plan_returns_its_flags_except_learning_rate_and_batch_size() -> None:
    flags = script_flags(SCRIPT, str(MODEL))
    assert flags["distill-topk"] == "20" and flags["gate"] == "True" and "global-batch-size" not in flags
    setting = setting_of(flags, 3e-4, 2, ["--gate-max-kl", "0.2"])
    args = parse_args(setting.flags(str(MODEL), "/tmp/nowhere", 5), env={})
    assert (args.lr, args.rollout_batch_size, args.seed, args.gate_max_kl) == (3e-4, 2, 5, 0.2)
    assert args.gate and args.loss_spec_path == flags["loss-spec-path"]
    assert args.on_weights_rejected_path is None, "the local loop records rejections itself"
    assert setting.method.hook == flags["method-path"] and setting.method.votes == 3


def test_flags_are_split_like_in_a_shell() -> None:
    flags = {"gate": "True", "trim": "False", "service-path": "['a.b', 'c.d']", "lr": "0.1"}
    assert words_of(flags) == [
        "--gate",
        "--no-trim",
        "--service-path",
        "a.b",
        "--service-path",
        "c.d",
        "--lr",
        "0.1",
    ]
