#!/usr/bin/env bash
# RL of Qwen3-4B-Instruct-2507 that repairs repositories, trainer and policy on the same GPUs of four machines with 8 each; run it on all.
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 RUN_DIR=/shared/run SWE_BENCH_PATH=/shared/swe HF_CKPT=/shared/Qwen3-4B-Instruct-2507 bash swe-rl/run_swe_rl_4b_4nodes_colocate.sh
#   DRY_RUN=1 bash swe-rl/run_swe_rl_4b_4nodes_colocate.sh   the plan and every argument; needs no GPU
# Variables and flags: swe-rl/README.md, instructions/cluster.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/swe-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=swe_rl_4b_4nodes_colocate MODEL=Qwen3-4B-Instruct-2507
swe_defaults
default COLOCATE 1
default PARALLEL_ENVS 48
default NNODES 4
default ACTOR_NODES 4
default ACTOR_GPUS 8
default ROLLOUT_GPUS 32
default TP 2
default MAX_TOKENS_PER_GPU 9216
default MEM_FRACTION_STATIC 0.5
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${SWE[@]}" "${SWE_RL[@]}" --rollout-batch-size 32 --n-samples-per-prompt 8 --save-interval 1
  --rollout-temperature 1.4 --rollout-top-p 0.95 --weight-decay 0.01 --adam-beta2 0.999
  --dynamic-sampling-filter-path slime.rollout.filters.check_reward_nonzero_std)
run_gpu "$@"
