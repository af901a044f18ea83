#!/usr/bin/env bash
# An agent at a screen on a laptop: GRPO of a tiny model on the accessibility tree of small pages in a real Chromium.
#   bash gui-rl/run_tiny_gui_rl.sh             ends with a table, a plot and one JSON line
#   DRY_RUN=1 bash gui-rl/run_tiny_gui_rl.sh   the plan and every argument; starts nothing
# Needs Chromium (Debian: apt-get install chromium). Any flag goes to the driver: python slime/train_async.py --help.
# Variables: RUN_DIR, MODEL_PATH, PARALLEL_ENVS, MAX_STEPS, SEED, and the strings CKPT_ARGS ROLLOUT_ARGS OPTIMIZER_ARGS LORA_ARGS.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"
# shellcheck source=flags.sh
source "$ROOT/gui-rl/flags.sh"
# shellcheck source=tiny.sh
source "$ROOT/gui-rl/tiny.sh"

default MAX_STEPS 3
tiny_begin tiny_model pages "$@"
arguments+=(
  --gui-coordinate-type tags --gui-screen-width 800 --gui-screen-height 600
  --rollout-max-context-len 240 --rollout-max-response-len 32
  --num-rollout 17 --num-steps-per-rollout 4 --eval-interval 17 --lr 5e-4 --lr-decay-iters 80
)
tiny_train "$@"
