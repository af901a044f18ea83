#!/usr/bin/env bash
# Real SGLang on a CPU, in a Python of its own (about 3.4 GB of downloads the first time): its protocol, a conversation
# through the gateway, and weight updates with proof, read from disk and by broadcast.
# Usage: bash tests/long/run_sglang.sh [FOLDER OF THE ENVIRONMENT]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
env_dir=${1:-${SGLANG_ENV:-$HOME/.cache/openclaw-rl/sglang-cpu}}
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
  "$env_dir/bin/pip" install -q --no-deps sglang==0.5.23
  "$env_dir/bin/pip" install -q torch==2.13.0 -r "$here/sglang_cpu/requirements.txt"
  "$env_dir/bin/pip" install -q --no-deps -r "$here/sglang_cpu/requirements-nodeps.txt"
  touch "$env_dir/complete"
fi
site=$("$env_dir/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp "$here/sglang_cpu/sitecustomize.py" "$site/"
cp -r "$here/sglang_cpu/sgl_kernel" "$site/"

export PYTHONPATH="$root:$root/slime:$root/openclaw-rl:$root/openclaw-test"
"$python" "$here/tiny_models.py" "$work/first" "$work/second"
port=${PORT:-21901}

serve() { # flags of SGLang; returns when it serves
  rm -f "$work/ready"
  SGLANG_USE_CPU_ENGINE=1 "$python" -m slime.engines.launch --backend sglang --model-path "$work/first" \
    --port "$port" --engine-python "$env_dir/bin/python" --device cpu --dtype float32 --max-total-tokens 32768 \
    --sglang-attention-backend torch_native "$@" >"$work/ready" 2>"$work/log" &
  engine=$!
  until [ -s "$work/ready" ]; do
    if ! kill -0 "$engine" 2>/dev/null; then
      tail -20 "$work/log" >&2
      exit 1
    fi
    sleep 0.5
  done
  cat "$work/ready"
}

serve
"$python" "$here/engine_protocol.py" "http://127.0.0.1:$port" "$work/first" "$work/second" sglang
"$python" "$here/sglang_broadcast.py" "http://127.0.0.1:$port" "$work/first" "$work/second"
kill "$engine"
wait "$engine" || true
echo "two tensor-parallel ranks"
export SGLANG_CPU_OMP_THREADS_BIND="0|1"
serve --sglang-tp-size 2
"$python" "$here/sglang_broadcast.py" "http://127.0.0.1:$port" "$work/first" "$work/second"
