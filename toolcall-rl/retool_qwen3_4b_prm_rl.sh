#!/usr/bin/env bash
# ReTool with a judge of steps: RL of Qwen3-4B on 8 GPUs (trainer 2, policy 4, judge 2), after retool_qwen3_4b_sft.sh.
#   PROMPT_DATA=/data/problems.jsonl EVAL_DATA=/data/aime.jsonl HF_CKPT=/models/qwen3-4b-retool-sft bash toolcall-rl/retool_qwen3_4b_prm_rl.sh
#   DRY_RUN=1 bash toolcall-rl/retool_qwen3_4b_prm_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: toolcall-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/toolcall-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=retool_qwen3_4b_prm_rl MODEL=Qwen3-4B-Instruct-2507
default PRM_GPUS 2
retool_defaults
default ACTOR_GPUS 2
default ROLLOUT_GPUS 4
default MAX_TOKENS_PER_GPU 16384
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TOOLCALL[@]}" "${RETOOL_RL[@]}" --advantage-estimator step_wise --prm-temperature 0.6 --prm-max-new-tokens 4096)
run_gpu "$@"
