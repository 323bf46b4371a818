#!/bin/sh
# usage: tools/lint.sh [format | rules | tidy]
# Check the tree: layout, the rules of the house that a pattern can see, scripts, clang-tidy. Without an
# argument all of these; `format` lays the sources out instead of checking them. A rule that fails prints the
# lines at fault; all rules are tried before it ends with 1.
# shellcheck disable=SC2016 # dollar signs in awk and sh -c programs are theirs
set -u
what=${1:-all}
bad=0
sources=$(git ls-files -co --exclude-standard 'src/*.[ch]' 'include/*.h' 'tests/*.[ch]' 'bench/*.[ch]' 'fuzz/*.[ch]')
code=$(echo "$sources" | grep '^src/')
library=$(echo "$code" | grep -v '^src/cli/')

if [ "$what" = format ]; then
    echo "$sources" | xargs clang-format -i
    exit
fi

# fail TEXT LINES: a broken rule, when there are lines
fail() {
    [ -z "$2" ] && return
    bad=1
    printf 'lint: %s\n%s\n' "$1" "$(echo "$2" | sed 's/^/  /' | head -n 20)"
}

# find_code PATTERN FILES: lines of code that match, comments and strings aside
find_code() {
    echo "$2" | xargs awk -v pattern="$1" '
        FNR == 1 { inside = 0 }
        {
            line = $0
            gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
            gsub(/\/\*[^*]*([*][^\/][^*]*)*\*\//, "", line)
            if (inside) { if (!sub(/.*\*\//, "", line)) next; inside = 0 }
            if (sub(/\/\*.*/, "", line)) inside = 1
            if (line ~ pattern) print FILENAME ":" FNR ": " $0
        }'
}

# One line for each include of src/<room>/ that its room may not use.
arrows() {
    echo "$code" | xargs grep -n '^#include "' | awk -F '[:/"]' '
        BEGIN {
            may["base"] = "base"
            may["gguf"] = "base quant gguf"
            may["quant"] = "base quant"
            may["kernel"] = "base quant kernel"
            may["text"] = "base gguf text"
            may["model"] = "base gguf quant kernel text model"
            may["run"] = may["model"] " run"
            may["decode"] = may["run"] " decode"
            may["serve"] = may["decode"] " serve"
            may["cli"] = may["serve"] " cli"
        }
        {
            line = $0
            room = $2
            match(line, /#include "[^"]*"/)
            name = substr(line, RSTART + 10, RLENGTH - 11)
            if (split(name, part, "/") == 1) next # linnet.h, or a file of the same folder
            if (index(" " may[room] " ", " " part[1] " ") == 0) print line
        }'
}

rules() {
    fail "layout: 'make format' puts it right" \
        "$(echo "$sources" | xargs clang-format --dry-run 2>&1 | grep 'warning:' | cut -d: -f1 | sort | uniq -c)"
    fail "lines over 100 columns" \
        "$(echo "$sources" | xargs awk '{ s = $0; gsub(/[\200-\277]/, "", s) } length(s) > 100 { print FILENAME ":" FNR ": " length(s) }')"
    fail "banned functions (use snprintf, strtol, arrays of a fixed size)" \
        "$(find_code '(^|[^a-z_0-9])(strtok|strtok_r|sprintf|vsprintf|atoi|atol|atof|alloca|gets) *[(]' "$(echo "$sources" | grep -v '^bench/peers/')")"
    fail "the library never prints, exits, aborts, reads the environment or handles signals" \
        "$(find_code '(^|[^a-z_0-9])(printf|fprintf|puts|putchar|perror|exit|_exit|abort|getenv|setenv|signal|sigaction) *[(]' "$library")"
    fail "an int holds a product: sizes are size_t, products of dimensions are checked" \
        "$(find_code '(^|[^a-z_0-9])(int|int32_t) [a-z_0-9]+ = [a-z_0-9>.-]*(dim|rows|cols|width|n_vocab|n_embd|n_ctx|n_head|stride|size)[a-z_0-9]* [*] [a-z]' "$library")"
    fail "an include against the arrows of docs/architecture.md" "$(arrows)"
    fail "unfinished business" "$(echo "$sources" | xargs grep -nwE 'TODO|FIXME|XXX|HACK')"
    fail "paths of a machine" "$(git grep -nE '/(home|work|Users)/[a-z]' -- . ':!tools/lint.sh')"
    fail "a source file opens with a comment that says what it owns" \
        "$(for f in $code; do head -n 1 "$f" | grep -q '^/\*' || echo "$f"; done)"
    fail "a file is too long (900 lines, kernels 2,000, Makefile 250)" \
        "$(echo "$code" | xargs wc -l | awk '$2 != "total" && $1 > ($2 ~ /kernel/ ? 2000 : 900)
'; awk 'END { if (NR > 250) print "Makefile: " NR " lines" }' Makefile)"
    fail "a file in the root" \
        "$(git ls-files | grep -v / | grep -vE '^(\..*|README.md|LICENSE|CONTRIBUTING.md|Makefile)$')"
    if command -v shellcheck >/dev/null; then
        fail "scripts" "$(shellcheck -f gcc tools/*.sh tests/run.sh .ci/run 2>&1)"
    fi
}

# The checks are in .clang-tidy; each file is taken as the Makefile compiles it.
tidy() {
    out=$(echo "$code" | grep "[.]c$" | xargs -P "$(nproc)" -n 4 sh -c '
        for f; do
            case $f in
            *_avx2.c) isa="-mavx2 -mfma -mf16c -mbmi2" ;;
            *_avx512.c | *_vnni.c) isa="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx2 -mfma -mf16c -mbmi2" ;;
            src/kernel/arm/*) continue ;;
            *) isa= ;;
            esac
            eval "clang-tidy --quiet \"$f\" -- $TIDY_FLAGS $isa" 2>/dev/null
        done' sh)
    fail "clang-tidy" "$(echo "$out" | grep -E 'warning:|error:')"
}

case $what in
all) rules; tidy ;;
rules) rules ;;
tidy) tidy ;;
*) echo "usage: tools/lint.sh [format | rules | tidy]" >&2; exit 2 ;;
esac
[ "$bad" -eq 0 ] && echo "lint: nothing to say"
exit "$bad"
