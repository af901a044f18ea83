#!/usr/bin/env bash
# RL of any model in terminals on GPUs: MODEL_PATH, and DATASET_DIR where it is not the tasks of this folder.
#   MODEL_PATH=/models/Qwen3-8B MAX_STEPS=20 PARALLEL_ENVS=32 bash terminal-rl/run_terminal_rl.sh
#   DRY_RUN=1 bash terminal-rl/run_terminal_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: terminal-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/terminal-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=terminal_rl MODEL=Qwen3-8B
default PRM_GPUS 0
terminal_defaults
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TERMINAL[@]}" "${TERMINAL_RL[@]}" --advantage-estimator grpo)
run_gpu "$@"
