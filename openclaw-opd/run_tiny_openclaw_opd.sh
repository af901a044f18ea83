#!/usr/bin/env bash
# Token-level on-policy distillation on a laptop:
# serves the tiny model on http://127.0.0.1:30000/v1 and trains it while you talk to it.
#   bash openclaw-opd/run_tiny_openclaw_opd.sh          until Ctrl-C
#   bash openclaw-opd/run_tiny_openclaw_opd.sh --demo   a scripted user talks to it until it has learned; prints the result
#   DRY_RUN=1 bash openclaw-opd/run_tiny_openclaw_opd.sh   the plan and every argument; starts nothing
# Any other flag goes to the driver: see python slime/train_async.py --help, and instructions/settings.md for the variables.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/tiny.sh
source "$ROOT/launch/tiny.sh"

USAGE=${BASH_SOURCE[0]}
RUN_NAME=tiny_openclaw_opd
METHOD=(
  --rollout-function-path openclaw.trainer_hooks.lease.generate_rollout
  --on-weights-live-path openclaw.trainer_hooks.lease.on_weights_live --keep-token-records 8
  --method-path openclaw_opd.opd:sample_from_judged_turn
  --advantage-estimator on_policy_distillation --teacher-source trainer
  --teacher-model "${PRM_TEACHER_HF:-base}" # base: the model that training began with
)
run_tiny "$@"
