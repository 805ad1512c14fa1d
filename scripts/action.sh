#!/usr/bin/env bash
# What action.yml runs: install tarmac beside the job's own environment, check once for people and once for SARIF.
set -uo pipefail

venv="${RUNNER_TEMP:-/tmp}/tarmac"
if [ -z "${TARMAC_COMMAND:-}" ]; then
  python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet "$TARMAC_ACTION[yaml]" || exit 2
  TARMAC_COMMAND="$venv/bin/tarmac"
fi

read -r -a told <<<"${TARMAC_FRAMEWORKS:-}"
[ -n "${TARMAC_DOCKERFILE:-}" ] && told+=("--dockerfile=$TARMAC_DOCKERFILE")
[ -n "${TARMAC_ON:-}" ] && told+=("--on=$TARMAC_ON")
[ -n "${TARMAC_DRIVER:-}" ] && told+=("--driver=$TARMAC_DRIVER")
[ -n "${TARMAC_WANTS:-}" ] && told+=("--wants=$TARMAC_WANTS")
[ "${TARMAC_STRICT:-false}" = true ] && told+=(--strict)

"$TARMAC_COMMAND" check "${told[@]}"
code=$?
sarif="${RUNNER_TEMP:-/tmp}/tarmac.sarif"
if [ "$code" -ne 2 ] && "$TARMAC_COMMAND" check "${told[@]}" --format sarif >"$sarif"; [ -s "$sarif" ]; then
  echo "sarif=$sarif" >>"${GITHUB_OUTPUT:-/dev/null}"
fi
echo "exit=$code" >>"${GITHUB_OUTPUT:-/dev/null}"
[ "$code" -eq 2 ] && exit 2
[ "${TARMAC_FAIL:-true}" = true ] && exit "$code"
exit 0
