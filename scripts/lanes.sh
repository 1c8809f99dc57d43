# How the tests run: in two lanes beside each other. A part of scripts/test.

# The binaries of tests that wait for servers and browsers most of the time. They run beside the others, which
# keep the cores busy. Whatever is not here is among the others.
waiting=(browser checkout cluster database_server failover http orders partition payment_sdk payments_kills
    redis_faults sentinel sql_faults zookeeper_store zookeeper_store_conformance)

# All of them run, so that one run tells of everything that fails. Most tests wait for servers most of the time,
# and keep two cores busy only if there are more of them.
test_in_lanes() {
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
    local test=(cargo test --workspace --all-features --no-fail-fast) built name code=0
    # Without a selection of targets, so that the examples are built as programs, which some tests start.
    "${test[@]}" --no-run
    built=$("${test[@]}" --no-run --quiet --message-format=json |
        sed -n 's/.*"kind":\["test"\][^{}]*"name":"\([^"]*\)".*"executable":"[^"]*".*/\1/p' | sort -u)
    local beside=() others=()
    for name in $built; do
        if [[ " ${waiting[*]} " == *" $name "* ]]; then
            beside+=(--test "$name")
        else
            others+=(--test "$name")
        fi
    done
    if ((${#beside[@]} != 2 * ${#waiting[@]})); then
        echo "scripts/lanes.sh names tests that are not there: it says ${waiting[*]}, and there are:"
        echo "$built"
        return 1
    fi
    lanes_log=$(mktemp -d)
    "${test[@]}" "${beside[@]}" >"$lanes_log/beside" 2>&1 &
    lanes_pid=$!
    "${test[@]}" --lib --bins "${others[@]}" 2>&1 | tee "$lanes_log/others" || code=$?
    "${test[@]}" --doc 2>&1 | tee "$lanes_log/doc" || code=$?
    echo "beside these ran: ${waiting[*]}"
    wait "$lanes_pid" || code=$?
    lanes_pid=
    cat "$lanes_log/beside"
    if ((code != 0)); then
        failures "$lanes_log"/*
    fi
    rm -rf -- "$lanes_log"
    return "$code"
}

# What failed, once more and last: where a log is cut, its end is what is kept.
failures() {
    echo
    echo "what failed:"
    awk '/^     Running |^   Doc-tests / { program = $0; sub(/ *\(.*/, "", program); sub(/^ *(Running )?/, "", program) }
        /^---- .* ----$/ { lines = 6; print program ": " $2 }
        /^note: run with|^failures:|^test result: / { lines = 0 }
        lines > 0 && !/^---- / && NF { print "    " $0; lines-- }
        /^error/ && !/to rerun pass/ { lines = 4; print }' "$@" | cut -c 1-300
}

lanes_log=
lanes_pid=
