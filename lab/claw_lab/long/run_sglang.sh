#!/usr/bin/env bash
# Real SGLang on a CPU, in a Python of its own (about 3.4 GB of downloads the first time): its protocol, a conversation
# through the gateway, and weight updates with proof, read from disk and by broadcast.
# Usage: bash lab/claw_lab/long/run_sglang.sh [FOLDER OF THE ENVIRONMENT]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=engine.sh
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
env_dir=${1:-${SGLANG_ENV:-$HOME/.cache/openclaw-rl/sglang-cpu}}

sglang_on_cpu "$env_dir"
two_models
port=${PORT:-21901}
export SGLANG_USE_CPU_ENGINE=1
flags=(--backend sglang --port "$port" --engine-python "$env_dir/bin/python" --device cpu --dtype float32)
flags+=(--max-total-tokens 32768 --sglang-attention-backend torch_native)

"$python" -m claw_lab.long.named_flags "$env_dir/bin/python"
"$python" -m claw_lab.long.sglang_pictures "$("$env_dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
start_engine "${flags[@]}"
"$python" -m claw_lab.long.engine_protocol "http://127.0.0.1:$port" "$work/first" "$work/second" sglang
"$python" -m claw_lab.long.sglang_broadcast "http://127.0.0.1:$port" "$work/first" "$work/second"
stop_engine
echo "two tensor-parallel ranks"
export SGLANG_CPU_OMP_THREADS_BIND="0|1"
start_engine "${flags[@]}" --sglang-tp-size 2
"$python" -m claw_lab.long.sglang_broadcast "http://127.0.0.1:$port" "$work/first" "$work/second"
