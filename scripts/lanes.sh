# How the tests run: in lanes beside each other, which take the programs of the tests from one list. A part of
# scripts/test.

# Most programs wait for servers, elections and browsers much of the time: with so many at once, two cores are busy.
lanes=3

# The tests of an ordinary run besides those in the sources and the documentation: each rule on one server of each kind.
# The others are of `thorough`: further brokers and shapes of Redis, processes and servers that are killed, browsers, and
# the searches of the protocol. The longest programs start first, so that none of them runs alone at the end. After a
# name follows a part of the names of its tests; with a dash, the part of those that are left to `thorough`.
ordinary=(
    "sql -orders::"
    "steps memory::"
    "ui"
    "conformance cluster::"
    "conformance postgres::"
    "stores"
    "conformance mariadb::"
    "conformance sqlite::"
    "public_api"
    "command"
    "conformance redis::"
    "conformance memory::"
    "consumers redis_streams"
    "steps checker::"
    "semantics"
    "layered"
    "http"
    "services"
    "iceberg -kills::"
    "profiles"
    "shapes"
    "history"
    "observed"
    "documented"
    "arrows"
)

# The programs of `thorough` that take longest, in this order. The others follow, as cargo lists them.
longest=(consumers steps conformance protocol failover scenarios zookeeper_store_conformance servers cluster redis_faults
    checkout mutants sql payments killed_steps soak)

# Builds test programs, with options that select some. Prints the kind, the name, the manifest and the path of each.
built_programs() {
    local test=(cargo test --workspace --all-features --no-run "$@")
    "${test[@]}" >&2 || return
    "${test[@]}" --quiet --message-format=json | sed -n \
        's/.*"manifest_path":"\([^"]*\)".*"kind":\["\([^"]*\)".*"name":"\([^"]*\)".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\2 \3 \1 \4/p'
}

# Runs the units, the documentation and the selection of `ordinary`.
test_in_lanes() {
    local built entry name part line select=(--lib --bins)
    for name in $(printf '%s\n' "${ordinary[@]}" | cut -d ' ' -f 1 | sort -u); do
        select+=(--test "$name")
    done
    built=$(built_programs "${select[@]}")
    programs=()
    for entry in "${ordinary[@]}"; do
        read -r name part <<<"$entry"
        while read -r line; do
            programs+=("$line ${part/#-/--skip }")
        done < <(sed -n "s/^test \($name .*\)/\1/p" <<<"$built")
    done
    programs+=("doctests $PWD/Cargo.toml -")
    while read -r line; do
        programs+=("$line")
    done < <(sed -n '/^test /!s/^[^ ]* //p' <<<"$built")
    run_programs
}

# Runs what an ordinary run leaves out.
thorough_in_lanes() {
    local built line
    # Without a selection of targets, so that the examples are built as programs, which some tests start.
    built=$(built_programs)
    programs=()
    while read -r line; do
        left_out "$line"
    done < <(sed -n 's/^test //p' <<<"$built" | awk -v longest="${longest[*]}" '
        BEGIN { count = split(longest, names); for (i = 1; i <= count; i++) rank[names[i]] = i }
        { print ($1 in rank ? rank[$1] : count + 1), $0 }' | sort -s -n -k 1,1 | cut -d ' ' -f 2-)
    run_programs
}

# Adds a program with the tests that an ordinary run leaves out, if there are any.
left_out() {
    local entry name part options=()
    for entry in "${ordinary[@]}"; do
        read -r name part <<<"$entry"
        if [[ $name == "${1%% *}" ]]; then
            case $part in
            "") return ;;
            -*) options+=("${part#-}") ;;
            *) options+=(--skip "$part") ;;
            esac
        fi
    done
    programs+=("$1 ${options[*]-}")
}

# The programs in `programs`, each a line of its name, its manifest, its path and its options.
run_programs() {
    local lane code=0
    if ((${#programs[@]} < 10)); then
        echo "only ${#programs[@]} programs of tests were found in what cargo built"
        return 1
    fi
    # Most tests of a program wait as well.
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
    # As cargo does: the tests of a crate of macros link to the standard library of the compiler.
    LD_LIBRARY_PATH=$(rustc --print target-libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    lanes_log=$(target_directory)/lanes/$current
    rm -rf -- "$lanes_log"
    mkdir -p "$lanes_log"
    for ((lane = 0; lane < lanes; lane++)); do
        run_lane &
        lanes_pids+=($!)
    done
    for lane in "${lanes_pids[@]}"; do
        wait "$lane" || code=1
    done
    lanes_pids=()
    echo "${#programs[@]} programs of tests, what they printed is in $lanes_log"
    if ((code != 0)); then
        failures "$lanes_log"/*.log
    fi
    return "$code"
}

# Runs programs that no lane has taken yet, until there are none.
run_lane() {
    local number name manifest program options log begun said used before=0 code=0 child=
    trap 'if [[ -n $child ]]; then kill "$child" 2>/dev/null; fi; exit 143' TERM
    for number in "${!programs[@]}"; do
        if ! mkdir "$lanes_log/$number" 2>/dev/null; then
            continue
        fi
        read -r name manifest program options <<<"${programs[number]}"
        begun=$SECONDS said=ok log=$lanes_log/$number-$name.log
        echo "     Running $name $options" >"$log"
        if [[ $program == - ]]; then
            cargo test --workspace --all-features --no-fail-fast --doc >>"$log" 2>&1 &
        else
            # shellcheck disable=SC2086 # its options are words
            (cd "${manifest%/*}" && CARGO_MANIFEST_DIR=$PWD exec "$program" $options) >>"$log" 2>&1 &
        fi
        child=$!
        if ! wait "$child"; then
            said=FAILED code=1
            echo "error: $name failed" >>"$log"
        elif [[ -n $options ]] && grep -q '^running 0 tests' "$log"; then
            said=FAILED code=1
            echo "error: $name has no test of $options" >>"$log"
        fi
        child=
        # Of all programs of this lane so far, and not in a pipeline, whose shell has none.
        times >"$lanes_log/$number/times"
        used=$(awk -F '[ms ]+' 'NR == 2 { print int(60 * ($1 + $3) + $2 + $4) }' "$lanes_log/$number/times")
        echo "$name${options:+ $options}: $said, $((SECONDS - begun)) s, $((used - before)) s of processor time"
        before=$used
    done
    return "$code"
}

# What failed, once more and last: where a log is cut, its end is what is kept.
failures() {
    echo
    echo "what failed:"
    awk '/^     Running |^   Doc-tests / { program = $0; sub(/ *\(.*/, "", program); sub(/^ *(Running )?/, "", program) }
        FNR == 1 { lines = 0 }
        /^---- .* ----$/ { lines = 12; print program ": " $2 }
        /^stack backtrace:$/ { frames = 1; next }
        frames && /^ +[0-9]+: |^ +at |^note: / { next }
        { frames = 0 }
        /^note: run with|^failures:|^test result: / { lines = 0 }
        lines > 0 && !/^---- / && NF { print "    " $0; lines-- }
        /^error/ && !/to rerun pass/ { lines = 4; print }' "$@" | cut -c 1-300
}

programs=()
lanes_log=
lanes_pids=()
