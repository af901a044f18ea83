#!/usr/bin/env bash
# RL of Qwen3-VL-8B on pictures of pages with a judge of steps, on 8 GPUs (trainer 4, policy 3, judge 1).
#   HF_CKPT=/models/Qwen3-VL-8B-Thinking bash gui-rl/gui_qwen3vl_8b_prm_rl.sh
#   DRY_RUN=1 bash gui-rl/gui_qwen3vl_8b_prm_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: gui-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/gui-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=gui_qwen3vl_8b_prm_rl MODEL=Qwen3-VL-8B-Thinking
default PRM_GPUS 1
default PRM_MODEL_PATH "$ROOT/models/Qwen3-VL-4B-Thinking"
gui_defaults
default GUI_OBSERVATION_TYPE screenshot
default GUI_MAX_IMAGE_HISTORY_LENGTH 3
default ROLLOUT_GPUS 3
default MAX_RESPONSE_LEN 1024
default MAX_TOKENS_PER_GPU 32768
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${GUI[@]}" "${GUI_RL[@]}" --rollout-batch-size 8 --advantage-estimator step_wise
  --use-kl-loss --kl-loss-coef 0.01 --kl-loss-type k3 --prm-temperature 0.6 --prm-max-new-tokens 4096)
run_gpu "$@"
