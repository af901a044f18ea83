#!/usr/bin/env bash
# Binary RL on a laptop:
# serves the tiny model on http://127.0.0.1:30000/v1 and trains it while you talk to it.
#   bash openclaw-rl/run_tiny_openclaw_rl.sh          until Ctrl-C
#   bash openclaw-rl/run_tiny_openclaw_rl.sh --demo   a scripted user talks to it until it has learned; prints the result
#   DRY_RUN=1 bash openclaw-rl/run_tiny_openclaw_rl.sh   the plan and every argument; starts nothing
# Any other flag goes to the driver: see python slime/train_async.py --help, and instructions/settings.md for the variables.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/tiny.sh
source "$ROOT/launch/tiny.sh"

USAGE=${BASH_SOURCE[0]}
RUN_NAME=tiny_openclaw_rl
METHOD=(
  --rollout-function-path openclaw.trainer_hooks.lease.generate_rollout
  --on-weights-live-path openclaw.trainer_hooks.lease.on_weights_live --keep-token-records 8
  --method-path openclaw_rl.binary_rl:sample_from_judged_turn
  --advantage-estimator grpo --disable-rewards-normalization
  --use-kl-loss --kl-loss-coef 0.05 --kl-loss-type low_var_kl # keeps what the model could do before
)
run_tiny "$@"
