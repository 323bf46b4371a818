#!/bin/sh
# Run test programs, show what failed, and close with "N passed, N failed, N skipped".
# BUILD is the build folder; RUNNER is put before each program (qemu-aarch64, valgrind).
passed=0 failed=0 skipped=0
log=${BUILD:-build}/tests/log
mkdir -p "$log"
for t in "$@"; do
    name=$(basename "$t")
    out=$log/$name.txt
    # cmocka's TAP output: "ok 1 - name", "not ok 2 - name", "ok 3 # SKIP name"
    CMOCKA_MESSAGE_OUTPUT=TAP $RUNNER "$t" >"$out" 2>&1
    rc=$?
    p=$(grep -c '^ok' "$out"); s=$(grep -c '^\(not \)\?ok .*# SKIP' "$out"); f=$(grep -c '^not ok' "$out")
    sn=$(grep -c '^not ok .*# SKIP' "$out")
    f=$((f - sn)); p=$((p - s + sn))
    if [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; echo "$name: ended with status $rc" >>"$out"; fi
    passed=$((passed + p)); failed=$((failed + f)); skipped=$((skipped + s))
    grep '^SKIPPED' "$out"
    if [ "$f" -ne 0 ]; then
        echo "FAIL $name ($p passed, $f failed), see $out"
        grep -v '^ok' "$out" | tail -n 40
    else
        echo "ok   $name ($p passed$([ "$s" -ne 0 ] && echo ", $s skipped"))"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
