#!/usr/bin/env bash
# RL of Qwen3-8B in terminals with a judge of steps, on 2 machines of 8 GPUs (trainer 4, policy 4, judge 8). The same command on both:
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 HF_CKPT=/models/Qwen3-8B DATASET_DIR=/data/tasks bash terminal-rl/terminal_qwen3_8b_prm_rl_2nodes.sh
#   DRY_RUN=1 bash terminal-rl/terminal_qwen3_8b_prm_rl_2nodes.sh   the plan and every argument; needs no GPU
# Variables and flags: terminal-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/terminal-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=terminal_qwen3_8b_prm_rl_2nodes MODEL=Qwen3-8B
default NNODES 2
default PRM_GPUS 8
default PRM_NUM_GPUS_PER_ENGINE 1
default PRM_M 1
default PRM_TEMPERATURE 0
default PRM_MAX_NEW_TOKENS 4096
default PRM_MODEL_PATH "${HF_CKPT:-${MODEL_PATH:-$ROOT/models/$MODEL}}"
terminal_defaults
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TERMINAL[@]}" "${TERMINAL_RL[@]}" --advantage-estimator step_wise --prm-enable --prm-step-coef 1.0
  --prm-num-gpus "$PRM_GPUS" --prm-num-gpus-per-engine "$PRM_NUM_GPUS_PER_ENGINE" --prm-model-path "$PRM_MODEL_PATH"
  --prm-m "$PRM_M" --prm-temperature "$PRM_TEMPERATURE" --prm-max-new-tokens "$PRM_MAX_NEW_TOKENS")
run_gpu "$@"
