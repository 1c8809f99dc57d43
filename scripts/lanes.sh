# How the tests run: in lanes beside each other, which take the programs of the tests from one list. A part of
# scripts/test.

# Most programs wait for servers, elections and browsers much of the time: with so many at once, two cores are busy.
lanes=3

# The programs that take longest, in this order. They start first, so that none of them runs alone at the end. The
# others follow, as cargo lists them.
longest=(steps consumers conformance sql failover doctests ui servers stores killed_steps cluster redis_faults mutants
    public_api checkout payments http zookeeper_store protocol layered)

# All of them run, so that one run tells of everything that fails.
test_in_lanes() {
    # Most tests of a program wait as well.
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
    local test=(cargo test --workspace --all-features) built name line
    # Without a selection of targets, so that the examples are built as programs, which some tests start.
    "${test[@]}" --no-run
    # The name, the manifest and the path of each program of tests.
    built=$("${test[@]}" --no-run --quiet --message-format=json | sed -n \
        's/.*"manifest_path":"\([^"]*\)".*"name":"\([^"]*\)".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\2 \1 \3/p')
    built+=$'\n'"doctests $PWD/Cargo.toml -"
    programs=()
    for name in "${longest[@]}"; do
        if ! grep "^$name " <<<"$built" >/dev/null; then
            echo "scripts/lanes.sh names a test that is not there: $name"
            return 1
        fi
        while read -r line; do
            programs+=("$line")
        done < <(grep "^$name " <<<"$built")
    done
    while read -r line; do
        if [[ " ${longest[*]} " != *" ${line%% *} "* ]]; then
            programs+=("$line")
        fi
    done <<<"$built"
    run_programs
}

# The programs in `programs`, each a line of its name, its manifest and its path.
run_programs() {
    local lane code=0
    # As cargo does: the tests of a crate of macros link to the standard library of the compiler.
    LD_LIBRARY_PATH=$(rustc --print target-libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    lanes_log=$(target_directory)/lanes
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
    local number name manifest program begun said used before=0 code=0 child=
    trap 'if [[ -n $child ]]; then kill "$child" 2>/dev/null; fi; exit 143' TERM
    for number in "${!programs[@]}"; do
        if ! mkdir "$lanes_log/$number" 2>/dev/null; then
            continue
        fi
        read -r name manifest program <<<"${programs[number]}"
        begun=$SECONDS said=ok
        echo "     Running $name" >"$lanes_log/$number-$name.log"
        if [[ $program == - ]]; then
            cargo test --workspace --all-features --no-fail-fast --doc >>"$lanes_log/$number-$name.log" 2>&1 &
        else
            (cd "${manifest%/*}" && CARGO_MANIFEST_DIR=$PWD exec "$program") >>"$lanes_log/$number-$name.log" 2>&1 &
        fi
        child=$!
        if ! wait "$child"; then
            said=FAILED code=1
            echo "error: $name failed" >>"$lanes_log/$number-$name.log"
        fi
        child=
        # Of all programs of this lane so far, and not in a pipeline, whose shell has none.
        times >"$lanes_log/$number/times"
        used=$(awk -F '[ms ]+' 'NR == 2 { print int(60 * ($1 + $3) + $2 + $4) }' "$lanes_log/$number/times")
        echo "$name: $said, $((SECONDS - begun)) s, $((used - before)) s of processor time"
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
