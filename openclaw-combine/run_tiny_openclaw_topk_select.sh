#!/usr/bin/env bash
# The hybrid on a laptop, Binary RL and top-K distillation from selected hints:
# serves the tiny model on http://127.0.0.1:30000/v1 and trains it while you talk to it.
#   bash openclaw-combine/run_tiny_openclaw_topk_select.sh          until Ctrl-C
#   bash openclaw-combine/run_tiny_openclaw_topk_select.sh --demo   a scripted user (--person student, TA, teacher or dasher) talks to it until it has learned; prints the result
#   DRY_RUN=1 bash openclaw-combine/run_tiny_openclaw_topk_select.sh   the plan and every argument; starts nothing
# Any other flag goes to the driver: see python slime/train_async.py --help, and instructions/settings.md for the variables.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/tiny.sh
source "$ROOT/launch/tiny.sh"

default OPENCLAW_TOPK_K 20
default OPENCLAW_TOPK_ADV_DIFF_CLIP 5.0
default OPENCLAW_TOPK_W_RL 9.0
default OPENCLAW_TOPK_W_OPD 12.0
default OPENCLAW_TOPK_SUBSET_MODE student
default OPENCLAW_TOPK_HINT_SELECTION sequence_optimal
default OPENCLAW_TOPK_MAX_CAND 3
default PRM_M 3
USAGE=${BASH_SOURCE[0]}
RUN_NAME=tiny_openclaw_topk_select
METHOD=(
  --rollout-function-path openclaw.trainer_hooks.lease.generate_rollout
  --on-weights-live-path openclaw.trainer_hooks.lease.on_weights_live --keep-token-records 8
  --method-path openclaw_combine.topk_select:sample_from_judged_turn
  --loss-spec-path openclaw_combine.loss:topk_select --teacher-source trainer --disable-rewards-normalization
  --teacher-model "${PRM_TEACHER_HF:-base}" # base: the model that training began with
  # as in the learning benchmark, openclaw-test/README.md: an epsilon above the noise of the gradient keeps the arithmetic
  --no-topk-plain-teacher --calculate-per-token-loss --lr 2e-3 --adam-eps 3e-3
  --replay-steps 10 --anchor-share 1 # feedback is learned sooner, and explicit wishes are still followed
  --standing-wishes people --standing-liked --teacher-guidance 1.25 # every turn teaches what anybody asked for last
  --custom-reward-post-process-path openclaw.trainer_hooks.credit.compare_with_person
  --use-kl-loss --kl-loss-coef 0.1 --kl-loss-type low_var_kl
)
run_tiny "$@"
