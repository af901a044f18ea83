#!/usr/bin/env bash
# ReTool with a judge of steps: RL of a 32B model on five machines with 8 GPUs each (trainer 16, policy 16, judge 8); run it on all.
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 RUN_DIR=/shared/run PROMPT_DATA=/shared/problems.jsonl HF_CKPT=/shared/qwen3-32b-retool-sft bash toolcall-rl/retool_qwen3_32b_prm_rl.sh
#   DRY_RUN=1 bash toolcall-rl/retool_qwen3_32b_prm_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: toolcall-rl/README.md, instructions/cluster.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/toolcall-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=retool_qwen3_32b_prm_rl MODEL=Qwen3-32B
default PRM_GPUS 8
retool_defaults
default NNODES 5
default ACTOR_NODES 2
default ACTOR_GPUS 8
default ROLLOUT_GPUS 16
default PRM_M 3
default TP 8
default MEM_FRACTION_STATIC 0.8
default MAX_TOKENS_PER_GPU 8192
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TOOLCALL[@]}" "${RETOOL_RL[@]}" --num-steps-per-rollout 1 --kl-loss-coef 0.0 --save-interval 40
  --advantage-estimator step_wise --prm-temperature 1.0 --prm-max-new-tokens 2048)
run_gpu "$@"
