#!/usr/bin/env bash
# Sets up what is missing and runs the tests on a CPU, in four processes; or what the arguments of pytest name.
#   bash run_tests.sh                        what every commit must pass (TEST_PROCESSES=3: in three processes)
#   bash run_tests.sh --all                  before a release: also the tests of tests/before_release.toml
#   bash run_tests.sh -m quick               about a minute
#   bash run_tests.sh tests/openclaw/store   a part, in one process
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=launch/env.sh
source "$ROOT/launch/env.sh"
cd "$ROOT"

# Two servers, a sandbox, a browser and a maker of images that some tests start for real. Only root on a Debian can install them here; elsewhere these tests
# skip and report it.
install_programs() {
  local program missing=()
  command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || missing+=(nginx-light)
  ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
  command -v bwrap >/dev/null || missing+=(bubblewrap)
  command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium)
  command -v chromedriver >/dev/null || missing+=(chromium-driver)
  command -v Xvfb >/dev/null || missing+=(xvfb)
  command -v xmodmap >/dev/null || missing+=(x11-xserver-utils)
  for program in openbox xdotool xterm mousepad podman; do
    command -v "$program" >/dev/null || missing+=("$program")
  done
  if [ "${#missing[@]}" -gt 0 ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"; } \
      >/dev/null 2>&1 || echo "warning: ${missing[*]} could not be installed; their tests will be skipped" >&2
  fi
}

# What only tests of before_release.toml need: the compiler of engines' kernels; and bitsandbytes, in a folder of its own, as peft
# imports it wherever it is.
install_for_release() {
  local compiler=$ROOT/tests/requirements-compiler.txt pin
  if ! is_installed "$compiler"; then
    pip_install -r "$compiler" && content_of "$compiler" >"$(stamp_of "$compiler")" \
      || echo "warning: the packages of $compiler could not be installed; their test will fail" >&2
  fi
  pin=$(grep '==' "$ROOT/tests/requirements-qlora.txt")
  [ -d "$VENV/side/${pin/==/-}.dist-info" ] || pip_install --no-deps --upgrade --target "$VENV/side" "$pin" \
    || echo "warning: $pin could not be installed; its test will be skipped" >&2
}

# Python compiles a module at its first import. All tests are collected by one process, which would compile packages for ten
# seconds; these imports compile them in parallel with the installation of the others.
compile_packages() {
  "$PY" -c 'import openclaw.judge.worker, openclaw.server, slime.ray.run, slime.training.fsdp, transformers.modeling_utils' || :
}

unset PYTHONDONTWRITEBYTECODE # the tests start hundreds of Pythons, and each would compile every file again
install_programs & # while pip unpacks packages
programs=$!
ensure_env "$ROOT/requirements.txt"
is_installed "$ROOT/requirements.txt" "$ROOT/requirements-dev.txt" || compile_packages >/dev/null 2>&1 &
ensure_env "$ROOT/requirements.txt" "$ROOT/requirements-dev.txt"
case " $* " in "  " | " -m quick ") ;; *) install_for_release ;; esac
wait "$programs"
export TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 RAY_USAGE_STATS_ENABLED=0
# Two more than the two cores that a small machine has: whole runs mostly wait for their processes.
processes=(--processes "${TEST_PROCESSES:-4}")
for word in "$@"; do
  if [ "$word" = quick ] || [ -e "${word%%::*}" ]; then processes=(--processes 1); fi
done
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
all=()
if [ "$*" = --all ]; then all=(--all) && shift; fi
[ $# -gt 0 ] && exec "$PY" -m pytest --durations=15 "${processes[@]}" "$@"

"$PY" -m tests.type_check >/dev/null 2>&1 & # one process collects the tests, and the others wait
# Tests that fail in parallel are run once more alone. This separates a busy machine, which leaves a warning, from a
# defect, which fails. Many failures are a defect.
status=0
"$PY" -m pytest --durations=15 "${processes[@]}" ${all[@]+"${all[@]}"} || status=$?
failed=$("$PY" "$ROOT/tests/last_failed.py" "$ROOT/.pytest_cache")
if [ "$status" != 1 ] || [ -z "$failed" ] || [ "$(wc -l <<<"$failed")" -gt 8 ]; then exit "$status"; fi
printf 'warning: failed in the run of all, tried again alone:\n%s\n' "$failed"
exec "$PY" -m pytest --last-failed --last-failed-no-failures none --all
