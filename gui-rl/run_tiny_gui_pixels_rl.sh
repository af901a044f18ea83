#!/usr/bin/env bash
# An agent that sees, on a laptop: GRPO of a tiny Qwen3-VL on pictures of coloured tiles in a real Chromium.
#   bash gui-rl/run_tiny_gui_pixels_rl.sh             ends with a table, a plot and one JSON line
#   DRY_RUN=1 bash gui-rl/run_tiny_gui_pixels_rl.sh   the plan and every argument; starts nothing
# Needs Chromium (Debian: apt-get install chromium). Any flag goes to the driver: python slime/train_async.py --help.
# Variables: RUN_DIR, MODEL_PATH, PARALLEL_ENVS, SEED, and the strings CKPT_ARGS ROLLOUT_ARGS OPTIMIZER_ARGS LORA_ARGS.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/launch.sh
source "$ROOT/launch/launch.sh"
# shellcheck source=flags.sh
source "$ROOT/gui-rl/flags.sh"
# shellcheck source=tiny.sh
source "$ROOT/gui-rl/tiny.sh"

tiny_begin tiny_seeing_model boards "$@"
arguments+=(
  --gui-observation-type screenshot --gui-screen-width 320 --gui-screen-height 240 --gui-max-steps 1
  --rollout-max-context-len 120 --rollout-max-response-len 10
  --num-rollout 14 --num-steps-per-rollout 6 --eval-interval 14 --lr 6e-4 --lr-decay-iters 92
  --freeze-params-name-list visual
)
tiny_train "$@"
