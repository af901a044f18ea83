# shellcheck shell=bash
# Flags of on-policy distillation, as arrays for the scripts that source this behind gpu.sh.
# shellcheck disable=SC2034  # a script uses one of the arrays

OPD=(
  --rollout-function-path openclaw.trainer_hooks.lease.generate_rollout
  --on-weights-live-path openclaw.trainer_hooks.lease.on_weights_live --keep-token-records 8
  --teacher-source trainer --teacher-model "${PRM_TEACHER_HF:-${PRM_TEACHER_LOAD:-base}}"
)
OPD_TOKEN=("${OPD[@]}" --method-path openclaw_opd.opd:sample_from_judged_turn --advantage-estimator on_policy_distillation)
OPD_TOPK=(
  "${OPD[@]}" --method-path openclaw_opd.opd_topk:sample_from_judged_turn
  --loss-spec-path openclaw_opd.loss:opd_topk --distill-topk 50 --rollout-batch-size 4 --lr 1e-6
)
