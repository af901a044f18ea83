#!/usr/bin/env bash
# Evaluates Qwen3-VL-4B on the held-out pages, on 8 GPUs (policy 8); trains nothing.
#   HF_CKPT=/models/Qwen3-VL-4B-Thinking bash gui-rl/gui_qwen3vl_4b_eval.sh
#   DRY_RUN=1 bash gui-rl/gui_qwen3vl_4b_eval.sh   the plan and every argument; needs no GPU
# Variables and flags: gui-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/gui-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=gui_qwen3vl_4b_eval MODEL=Qwen3-VL-4B-Thinking
default PRM_GPUS 0
default GUI_OBSERVATION_TYPE screenshot
default GUI_MAX_IMAGE_HISTORY_LENGTH 3
default ACTOR_GPUS 0
default EVAL_INTERVAL 1
gui_defaults
default ROLLOUT_GPUS 8
default MAX_RESPONSE_LEN 1024
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${GUI[@]}" "${GUI_RL[@]}" --debug-rollout-only --rollout-batch-size 1 --n-samples-per-prompt 1 --disable-rewards-normalization --num-rollout 1 --num-steps-per-rollout 1)
run_gpu "$@"
