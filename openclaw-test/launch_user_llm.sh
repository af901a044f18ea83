#!/usr/bin/env bash
# Serves the language model that plays the people of the evaluation, with SGLang, on its own port.
#   MODEL_PATH=/models/Qwen3-32B bash openclaw-test/launch_user_llm.sh
# Variables: MODEL_PATH (required), HOST (0.0.0.0), PORT (30001), TP_SIZE (8), MAX_TOKENS (32768), MODEL_NAME
# (qwen3-4b-user-llm), SGLANG_API_KEY; beyond this machine a key is required unless ALLOW_NO_KEY=1.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}"; exit 0 ;; esac
: "${MODEL_PATH:?set MODEL_PATH to the folder of the model that plays the people}"
HOST=${HOST:-0.0.0.0}
if [ "$HOST" != 127.0.0.1 ] && [ -z "${SGLANG_API_KEY:-}" ] && [ "${ALLOW_NO_KEY:-0}" != 1 ]; then
  echo "error: HOST=$HOST is open to others; set SGLANG_API_KEY, or HOST=127.0.0.1, or ALLOW_NO_KEY=1" >&2
  exit 2
fi
python3 -c 'import sglang' 2>/dev/null || { echo "error: SGLang is not installed here; see instructions/" >&2; exit 2; }
arguments=(
  --model-path "$MODEL_PATH" --host "$HOST" --port "${PORT:-30001}" --tp-size "${TP_SIZE:-8}"
  --context-length "${MAX_TOKENS:-32768}" --served-model-name "${MODEL_NAME:-qwen3-4b-user-llm}"
)
if [ -n "${SGLANG_API_KEY:-}" ]; then
  arguments+=(--api-key "$SGLANG_API_KEY")
fi
exec python3 -m sglang.launch_server "${arguments[@]}"
