#!/bin/sh
# Install the development environment into a venv: sh tools/development.sh PYTHON [only|no]
# The versions are those of requirements/test.txt, each file by its hash. Where they cannot be had (a newer Python, an index without them),
# whatever fits pyproject.toml is installed and a line says so; `only` stops instead, `no` does without the lock. A file that
# is not the one that was locked stops it always.
set -u
pip="$1 -m pip --disable-pip-version-check install --quiet"
if [ "${2:-}" != no ]; then
  said=$(mktemp) || exit 1
  trap 'rm -f "$said"' EXIT
  if $pip --require-hashes -r requirements/test.txt 2>"$said" && $pip --no-deps --no-build-isolation -e . 2>>"$said"; then
    echo 'installed by the lock: requirements/test.txt'
    exit 0
  fi
  cat "$said" >&2
  if grep -q 'DO NOT MATCH THE HASHES' "$said"; then
    echo 'STOPPED: a file is not the one that was locked (above); if you trust it: make test LOCKED=no' >&2
    exit 1
  fi
  echo 'NOT LOCKED: requirements/test.txt cannot be installed here (the reason is above)' >&2
  [ "${2:-}" = only ] && exit 1
fi
exec $pip -e '.[test,yaml]'
