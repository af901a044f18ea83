# shellcheck shell=bash
# Flags of Binary RL, as arrays for the scripts that source this behind gpu.sh.
# shellcheck disable=SC2034  # a script uses one of the arrays

BINARY_RL=(
  --rollout-function-path openclaw.trainer_hooks.lease.generate_rollout
  --on-weights-live-path openclaw.trainer_hooks.lease.on_weights_live --keep-token-records 8
  --method-path openclaw_rl.binary_rl:sample_from_judged_turn
  --advantage-estimator grpo --disable-rewards-normalization
)
