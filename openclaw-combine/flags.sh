# shellcheck shell=bash
# Flags of the combined methods, as arrays for the scripts that source this behind gpu.sh. Variables that they read have
# the defaults of their launch scripts here; they are exported, since the driver and the judges read them.
# shellcheck disable=SC2034  # a script uses one of the arrays

COMBINED=(
  --rollout-function-path openclaw.trainer_hooks.lease.generate_rollout
  --on-weights-live-path openclaw.trainer_hooks.lease.on_weights_live --keep-token-records 8
  --disable-rewards-normalization --teacher-model "${PRM_TEACHER_HF:-${PRM_TEACHER_LOAD:-base}}"
)
COMBINE=("${COMBINED[@]}" --method-path openclaw_combine.combine:sample_from_judged_turn --loss-spec-path openclaw_combine.loss:combine)
TOPK_SELECT=(
  "${COMBINED[@]}" --method-path openclaw_combine.topk_select:sample_from_judged_turn --loss-spec-path openclaw_combine.loss:topk_select --teacher-source trainer
)
# A wish is practised on everyday prompts, while anchors hold the model to explicit wishes: openclaw/dreaming/README.md. These
# values are careful ones; they were not run on a GPU.
DREAMS=(
  --no-topk-plain-teacher --standing-wishes person --teacher-guidance 1.5
  --dream-steps 8 --dream-first-steps 32 --dream-prompts 100 --extra-decay-steps 24
)

topk_select_defaults() {
  # At 1, scores of -1 undo what a hint teaches: the first step of Qwen 0.5 B then gains 0.02 nats instead of 0.26.
  default OPENCLAW_TOPK_W_RL 0.25
  default OPENCLAW_TOPK_K 4
  default OPENCLAW_TOPK_ADV_DIFF_CLIP 1.0
  default OPENCLAW_TOPK_SUBSET_MODE student
  default OPENCLAW_TOPK_HINT_SELECTION sequence_optimal
  default OPENCLAW_TOPK_MAX_CAND 3
  default PRM_M 3
}
