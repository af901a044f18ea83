#!/usr/bin/env bash
# RL of any model that repairs repositories, on one machine with 8 GPUs (trainer 4, policy 4).
#   SWE_BENCH_PATH=/data/swe HF_CKPT=/models/Qwen3-8B bash swe-rl/run_swe_rl.sh
#   DRY_RUN=1 bash swe-rl/run_swe_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: swe-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/swe-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=swe_rl MODEL=Qwen3-8B
swe_defaults
default ROLLOUT_GPUS 4
default MAX_TOKENS_PER_GPU 16384
default MEM_FRACTION_STATIC 0.6
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${SWE[@]}" "${SWE_RL[@]}")
run_gpu "$@"
