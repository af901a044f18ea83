# shellcheck shell=bash
# The flags of each method, as arrays for the scripts that source this behind gpu.sh. Variables that a method reads have
# the defaults of its launch scripts here; they are exported, since the driver and the judges read them.
# shellcheck disable=SC2034  # a script uses one of the arrays

BINARY_RL=(
  --rollout-function-path openclaw_rollout.generate_rollout_openclaw
  --on-weights-live-path openclaw_rollout.on_weights_live
  --method-path binary_rl:sample_from_judged_turn
  --advantage-estimator grpo --disable-rewards-normalization
)
OPD=(
  --rollout-function-path openclaw_opd_rollout.generate_rollout_openclaw_opd
  --on-weights-live-path openclaw_opd_rollout.on_weights_live
  --teacher-source trainer --teacher-model "${PRM_TEACHER_HF:-${PRM_TEACHER_LOAD:-base}}"
)
OPD_TOKEN=("${OPD[@]}" --method-path opd:sample_from_judged_turn --advantage-estimator on_policy_distillation)
OPD_TOPK=(
  "${OPD[@]}" --method-path opd_topk:sample_from_judged_turn
  --loss-type opd_topk --distill-topk 50 --rollout-batch-size 4 --lr 1e-6
)
COMBINED=(
  --rollout-function-path openclaw_combine_rollout.generate_rollout_openclaw_combine
  --on-weights-live-path openclaw_combine_rollout.on_weights_live
  --disable-rewards-normalization --teacher-model "${PRM_TEACHER_HF:-${PRM_TEACHER_LOAD:-base}}"
)
COMBINE=("${COMBINED[@]}" --method-path combine:sample_from_judged_turn --loss-type combine)
TOPK_SELECT=(
  "${COMBINED[@]}" --method-path topk_select:sample_from_judged_turn --loss-type topk_select --teacher-source trainer
)

topk_select_defaults() {
  default OPENCLAW_TOPK_K 4
  default OPENCLAW_TOPK_ADV_DIFF_CLIP 1.0
  default OPENCLAW_TOPK_SUBSET_MODE student
  default OPENCLAW_TOPK_HINT_SELECTION sequence_optimal
  default OPENCLAW_TOPK_MAX_CAND 3
  default PRM_M 3
}

lora_defaults() {
  default TP 1
  default MAX_TOKENS_PER_GPU 8192
  if [ -z "${TRAIN_GPUS:-}" ]; then
    default ACTOR_GPUS 2
    default ROLLOUT_GPUS 1
    default PRM_GPUS 1
  fi
}

# one_gpu_defaults: everything on one card of 24 GB; what the engine's share (MEM_FRACTION_STATIC) leaves is the trainer's.
one_gpu_defaults() {
  default COLOCATE 1
  default ACTOR_GPUS 1
  default ROLLOUT_GPUS 1
  default PRM_GPUS 0
  default TP 1
  default CONTEXT_LENGTH 16384
  default MAX_TOKENS_PER_GPU 4096
  default MAX_RESPONSE_LEN 4096
  default LOG_PROBS_CHUNK_SIZE 256
  default MEM_FRACTION_STATIC 0.45
  USUAL_GPU=24GB
}
