# How the tests run: in lanes beside each other. A part of scripts/test.

# The binaries of tests of each lane, which run one after the other; lanes run beside each other, so that
# those that wait for servers and browsers leave the cores to those that do not. Whatever is in no lane is
# in one of its own. Each takes about as long.
lanes=(
    "cluster database_server failover failover_modes mutants partition protocol redis_faults sentinel sql_faults"
    "browser checkout custom_store custom_store_conformance http orders payment_sdk payments_kills ui"
)

# All of them run, so that one run tells of everything that fails. Most tests wait for servers most of the time,
# and keep two cores busy only if there are more of them.
test_in_lanes() {
    export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
    local test=(cargo test --workspace --all-features --no-fail-fast) built name lane code=0
    # Without a selection of targets, so that the examples are built as programs, which some tests start.
    "${test[@]}" --no-run
    built=$("${test[@]}" --no-run --quiet --message-format=json |
        sed -n 's/.*"kind":\["test"\][^{}]*"name":"\([^"]*\)".*"executable":"[^"]*".*/\1/p' | sort -u)
    for name in ${lanes[*]}; do
        if ! grep -qx "$name" <<<"$built"; then
            echo "scripts/lanes.sh names a test that is not there: it says $name, and there are:"
            echo "$built"
            return 1
        fi
    done
    local others=()
    for name in $built; do
        if [[ " ${lanes[*]} " != *" $name "* ]]; then
            others+=(--test "$name")
        fi
    done
    lanes_logs=$(mktemp -d)
    for lane in "${lanes[@]}"; do
        # Unquoted, so that each name is one.
        "${test[@]}" $(printf -- '--test %s ' $lane) >"$lanes_logs/${#lanes_pids[@]}" 2>&1 &
        lanes_pids+=($!)
    done
    "${test[@]}" --lib --bins "${others[@]}" || code=$?
    "${test[@]}" --doc || code=$?
    for lane in "${!lanes[@]}"; do
        echo "beside these ran: ${lanes[lane]}"
        wait "${lanes_pids[lane]}" || code=$?
        unset "lanes_pids[lane]"
        cat "$lanes_logs/$lane"
    done
    rm -rf -- "$lanes_logs"
    return "$code"
}

lanes_logs=
lanes_pids=()
