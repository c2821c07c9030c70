#!/bin/sh
# Runs the tests on real servers of several versions, one after the other, and
# prints a table of the results. It goes on after a failure, and fails in the end
# if any test did.
#
#   versions.sh [-run REGEXP] VERSION...
#
# VERSION is one that internal/setup/setup.sh can get. Environment:
#   TESTPACKAGES  packages (default: ./integration)
#   TESTTIMEOUT   time limit of a version (default: 25m)
#   TESTLOGS      directory for the output (default: a new temporary one)
set -eu

cd "$(dirname "$0")/.."
packages=${TESTPACKAGES:-./integration}
run=.
if [ "${1:-}" = -run ] && [ $# -gt 1 ]; then
	run=$2
	shift 2
fi
[ $# -gt 0 ] || { echo "usage: versions.sh [-run REGEXP] VERSION..." >&2; exit 2; }

internal/setup/setup.sh "$@"
logs=${TESTLOGS:-$(mktemp -d "${TMPDIR:-/tmp}/lockstep-versions.XXXXXX")}
mkdir -p "$logs"
count() { grep -c "^--- $1:" "$log" || true; }

failed=
: >"$logs/table"
for version in "$@"; do
	log=$logs/$version.log
	echo "testing $packages on $version; the output is in $log"
	began=$(date +%s)
	result=ok
	# shellcheck disable=SC2086 # several packages
	LOCKSTEP_DB=$version go test -count=1 -v -timeout "${TESTTIMEOUT:-25m}" -run "$run" $packages >"$log" 2>&1 ||
		result=FAILED
	# What ran nothing has shown nothing.
	if [ "$result" = ok ] && [ "$(count PASS)" = 0 ]; then
		result="FAILED (no test ran)"
	fi
	printf '%-9s %7d %7d %8d %8d  %s\n' "$version" "$(count PASS)" "$(count FAIL)" "$(count SKIP)" \
		"$(($(date +%s) - began))" "$result" >>"$logs/table"
	if [ "$result" != ok ]; then
		failed=1
		grep -E '^(--- FAIL:|FAIL|panic:)' "$log" || tail -n 20 "$log"
	fi
done

printf '\n%-9s %7s %7s %8s %8s  %s\n' version passed failed skipped seconds result
cat "$logs/table"
if [ -n "$failed" ]; then
	echo "the whole output is in $logs" >&2
	exit 1
fi
[ -n "${TESTLOGS:-}" ] || rm -rf "$logs"
