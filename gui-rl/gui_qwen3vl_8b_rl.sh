#!/usr/bin/env bash
# RL of Qwen3-VL-8B on pictures of pages, on 8 GPUs (trainer 4, policy 4).
#   HF_CKPT=/models/Qwen3-VL-8B-Thinking bash gui-rl/gui_qwen3vl_8b_rl.sh
#   DRY_RUN=1 bash gui-rl/gui_qwen3vl_8b_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: gui-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/gui-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=gui_qwen3vl_8b_rl MODEL=Qwen3-VL-8B-Thinking
default PRM_GPUS 0
gui_defaults
default GUI_OBSERVATION_TYPE screenshot
default GUI_MAX_IMAGE_HISTORY_LENGTH 3
default ROLLOUT_GPUS 4
default MAX_RESPONSE_LEN 512
default MAX_TOKENS_PER_GPU 32768
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${GUI[@]}" "${GUI_RL[@]}" --rollout-batch-size 4 --advantage-estimator grpo)
run_gpu "$@"
