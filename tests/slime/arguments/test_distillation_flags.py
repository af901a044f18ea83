"""Tests flags of distillation: their environment names, implied values and rejections at the start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slime.arguments import Arguments, parse_args
from slime.errors import ConfigError

Read = Callable[..., Arguments]


@pytest.fixture
def read(model_folder: str, tmp_path: Path) -> Read:
    hook = tmp_path / "source.py"
    hook.write_text(
        "def generate(args, rollout_id, data_source, evaluation=False):\n    raise NotImplementedError\n"
    )

    def parse(words: str = "", **env: str) -> Arguments:
        base = f"--hf-checkpoint {model_folder} --rollout-function-path {hook}:generate --run-dir {tmp_path}"
        common = "--disable-rollout-global-dataset --disable-rewards-normalization"
        return parse_args(f"{base} {common} {words}".split(), env=env)

    return parse


def test_names_from_upstream_launch_scripts_are_accepted(read: Read) -> None:
    args = read(
        "--loss-spec-path openclaw_combine.loss:topk_select",
        OPENCLAW_TOPK_K="8",
        OPENCLAW_TOPK_W_RL="0.5",
        OPENCLAW_TOPK_W_OPD="2",
        OPENCLAW_TOPK_ADV_DIFF_CLIP="1.0",
        OPENCLAW_TOPK_PPO_CLIP_EPS_LO="0.1",
        OPENCLAW_TOPK_PPO_CLIP_EPS_HI="0.3",
        OPENCLAW_TOPK_MAX_CAND="2",
        OPENCLAW_TOPK_SUBSET_MODE="overlap",
        OPENCLAW_TOPK_HINT_SELECTION="sequence_optimal",
        OPENCLAW_COMBINE_OPD_TEACHER_SOURCE="megatron",
    )
    assert (args.distill_topk, args.topk_w_rl, args.topk_w_opd, args.topk_adv_diff_clip) == (8, 0.5, 2.0, 1.0)
    assert (args.topk_eps_clip, args.topk_eps_clip_high, args.hint_m) == (0.1, 0.3, 2)
    assert (args.distill_subset_mode, args.hint_selection) == ("overlap", "sequence_optimal")
    assert args.teacher_source == "trainer"
    args = read(
        "--loss-spec-path openclaw_combine.loss:combine --teacher-source sglang",
        OPENCLAW_COMBINE_W_RL="0",
        OPENCLAW_COMBINE_W_OPD="3",
    )
    assert (args.combine_w_rl, args.combine_w_opd, args.teacher_source) == (0.0, 3.0, "inference")


def test_the_loss_decides_the_teachers_place_and_ids(read: Read) -> None:
    assert (
        read("--loss-spec-path openclaw_opd.loss:opd_topk --distill-topk 5").distill_subset_mode == "teacher"
    )
    assert (
        read("--loss-spec-path openclaw_combine.loss:topk_select --distill-topk 5").distill_subset_mode
        == "student"
    )
    assert read("--loss-spec-path openclaw_combine.loss:combine").teacher_source == "trainer"
    assert read("--advantage-estimator on_policy_distillation").teacher_source == "inference"
    assert read("--use-opd --teacher-source mcore").teacher_source == "trainer"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--loss-spec-path openclaw_combine.loss:topk_select", "needs --distill-topk from 1 to 64"),
        (
            "--loss-spec-path openclaw_opd.loss:opd_topk --distill-topk 65",
            "from 1 to 64 .the vocabulary., got 65",
        ),
        (
            "--loss-spec-path openclaw_combine.loss:topk_select --distill-topk 4 --topk-w-rl 0 --topk-w-opd 0",
            "are both 0",
        ),
        ("--loss-spec-path openclaw_combine.loss:combine --combine-w-rl 0 --combine-w-opd 0", "are both 0"),
        ("--loss-spec-path openclaw_combine.loss:combine --combine-w-opd -1", "must be 0 or more"),
        (
            "--loss-spec-path openclaw_combine.loss:combine --distill-topk 4",
            "--distill-topk has no effect with --loss-spec-path openclaw_combine.loss:combine",
        ),
        ("--topk-w-rl 0.5", "unknown flag --topk-w-rl"),
        (
            "--loss-spec-path openclaw_combine.loss:topk_select --distill-topk 4 --combine-w-rl 2",
            "--combine-w-rl has no effect",
        ),
        ("--hint-selection token_optimal", "--hint-selection has no effect"),
        ("--loss-spec-path openclaw_combine.loss:combine --hint-m 2", "--hint-m has no effect"),
        (
            "--loss-spec-path openclaw_combine.loss:topk_select --distill-topk 4 --hint-m 0",
            "--hint-m must be 1 or more",
        ),
        (
            "--loss-spec-path openclaw_combine.loss:combine --teacher-source nowhere",
            "must be one of trainer, megatron",
        ),
        ("--teacher-source trainer", "uses no teacher"),
        ("--loss-type sft_loss --teacher-model self", "--teacher-model has no effect"),
        (
            "--loss-spec-path openclaw_combine.loss:combine --teacher-source inference --teacher-model self",
            "--teacher-model has no effect",
        ),
        (
            "--loss-spec-path openclaw_combine.loss:combine --teacher-model nowhere",
            "must be base, self, or the folder",
        ),
        (
            "--loss-spec-path openclaw_combine.loss:topk_select --distill-topk 4 --teacher-source inference",
            "ids that only the trainer knows",
        ),
        ("--loss-spec-path openclaw_combine.loss:combine --use-opd", "includes distillation"),
        (
            "--loss-spec-path openclaw_combine.loss:combine --normalize-advantages",
            "would whiten only the rewards",
        ),
        (
            "--loss-spec-path openclaw_combine.loss:combine --advantage-estimator gspo",
            "also selects a policy loss",
        ),
        (
            "--loss-spec-path openclaw_combine.loss:combine --use-rollout-logprobs",
            "log-probs of the trainer on both sides",
        ),
        (
            "--loss-spec-path openclaw_opd.loss:opd_topk --distill-topk 4 --use-tis",
            "which has no policy gradient",
        ),
        ("--loss-spec-path openclaw_combine.loss:topk_select --distill-topk 4 --topk-eps-clip 1", "below 1"),
    ],
)
def test_invalid_settings_are_rejected_in_one_line(read: Read, words: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as refusal:
        read(words)
    assert "\n" not in str(refusal.value)
