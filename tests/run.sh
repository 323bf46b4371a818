#!/bin/sh
# usage: tests/run.sh PROGRAM...
# Run test programs, as many at once as there are CPUs, show what failed, and close with the line
# "N passed, N failed, N skipped".
#
#   BUILD         the build folder; each program's output is kept below it in tests/log
#   RUNNER        put before each program (qemu-aarch64, valgrind)
#   JOBS          how many at once
#   TEST_TIMEOUT  seconds after which a program counts as hung (default 1200)
#
# Test programs find the built program as $LINNET, to be run as `$RUNNER $LINNET`.
BUILD=${BUILD:-build}
log=$BUILD/tests/log

# One program: its counts go to <name>.count, one line to the terminal. cmocka's TAP output is "ok 1 - name",
# "not ok 2 - name", "ok 3 # SKIP name" (some versions write "not ok 3 # SKIP").
if [ "$1" = --one ]; then
    name=$(basename "$2")
    out=$log/$name.txt
    start=$(date +%s)
    # shellcheck disable=SC2086
    CMOCKA_MESSAGE_OUTPUT=TAP timeout -k 10 "${TEST_TIMEOUT:-1200}" $RUNNER "$2" >"$out" 2>&1 </dev/null
    rc=$?
    took=$(($(date +%s) - start))
    count() { grep -c "$1" "$out"; }
    skipped=$(count '^\(not \)\?ok .*# SKIP')
    passed=$(($(count '^ok') - $(count '^ok .*# SKIP')))
    failed=$(($(count '^not ok') - $(count '^not ok .*# SKIP')))
    if [ "$rc" -ne 0 ] && [ "$failed" -eq 0 ]; then
        failed=1
        [ "$rc" -eq 124 ] && echo "$name: hung: killed after ${TEST_TIMEOUT:-1200} s" >>"$out"
        echo "$name: ended with status $rc" >>"$out"
    fi
    echo "$passed $failed $skipped" >"$log/$name.count"
    text="$passed passed"
    [ "$failed" -ne 0 ] && text="$text, $failed failed"
    [ "$skipped" -ne 0 ] && text="$text, $skipped skipped"
    [ "$took" -ge 2 ] && text="$text, $took s"
    if [ "$failed" -ne 0 ]; then
        printf 'FAIL  %s (%s), see %s\n%s\n' "$name" "$text" "$out" "$(grep -v '^ok' "$out" | tail -n 40)"
    else
        echo "ok    $name ($text)"
    fi
    exit 0
fi

rm -rf "$log"
mkdir -p "$log"
export BUILD RUNNER LINNET="$BUILD/linnet"
printf '%s\n' "$@" | xargs -P "${JOBS:-$(nproc)}" -n 1 sh "$0" --one

cat "$log"/*.txt | grep '^SKIPPED' | sort | uniq -c | sed 's/^ *\([0-9]*\) SKIPPED:/SKIPPED (\1):/'
cat "$log"/*.count | awk -v want="$#" '
    { passed += $1; failed += $2; skipped += $3; seen++ }
    END {
        if (seen < want) { failed += want - seen; print want - seen " test programs did not run" }
        printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
        exit failed != 0 || seen == 0
    }'
