#!/bin/sh
# usage: tools/fuzz.sh BUILD FUZZER...
# Run each fuzzer for FUZZ_SECONDS. What they find interesting stays in BUILD/corpus/<name>, so that the next
# run goes on from there; inputs that crash are left in BUILD/fuzz and named in the output.
set -u
build=$1
shift
bad=0
for f; do
    name=$(basename "$f")
    corpus=$build/corpus/$name
    mkdir -p "$corpus"
    seeds=
    [ -d "fuzz/seeds/$name" ] && seeds=fuzz/seeds/$name
    echo "fuzz: $name, ${FUZZ_SECONDS:-60} s"
    # shellcheck disable=SC2086
    "$f" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/fuzz/$name-" "$corpus" $seeds >"$build/fuzz/$name.log" 2>&1 || {
        bad=1
        tail -n 40 "$build/fuzz/$name.log"
    }
    grep -E '^stat::number_of_executed_units' "$build/fuzz/$name.log"
done
exit "$bad"
