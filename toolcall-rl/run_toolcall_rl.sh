#!/usr/bin/env bash
# RL of any model with tools on GPUs: MODEL_PATH, PROMPT_DATA, and TOOLS_CONFIG where it is more than the Python interpreter.
#   MODEL_PATH=/models/Qwen3-8B PROMPT_DATA=/data/problems.jsonl TOOLS_CONFIG=my_tools.json bash toolcall-rl/run_toolcall_rl.sh
#   DRY_RUN=1 bash toolcall-rl/run_toolcall_rl.sh   the plan and every argument, for Qwen3-8B where no model is named; needs no GPU
# Variables and flags: toolcall-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/toolcall-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=toolcall_rl MODEL=Qwen3-8B
retool_defaults
default ROLLOUT_GPUS 4
default MAX_TOKENS_PER_GPU 16384
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TOOLCALL[@]}" "${RETOOL_RL[@]}")
run_gpu "$@"
