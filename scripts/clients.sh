# The clients of the tests: a browser with its driver, and the SDK of a payment provider. A part of
# scripts/test, which has `install`.

# Programs, as the harness looks for them (tests/support/harness/chrome_driver.rs).
tools_browser() {
    local missing=() named
    for named in IDEM_CHROMIUM IDEM_CHROMEDRIVER; do
        if [[ -n ${!named:-} ]] && ! command -v "${!named}" >/dev/null; then
            echo "$named is no program: ${!named}"
            return 1
        fi
    done
    find_chromium >/dev/null || missing+=(chromium)
    find_chromedriver >/dev/null || missing+=(chromium-driver)
    if ((${#missing[@]})) &&
        ! { install "${missing[@]}" && find_chromium && find_chromedriver; } >&2; then
        echo "no Chromium with its driver: install them (Debian: apt-get install chromium chromium-driver;"
        echo "Fedora: dnf install chromium chromedriver; macOS: brew install --cask chromium chromedriver),"
        echo "or set IDEM_CHROMIUM and IDEM_CHROMEDRIVER to the paths of both"
        return 1
    fi
    "$(find_chromium)" --version
    "$(find_chromedriver)" --version
}

find_chromium() {
    first_program "${IDEM_CHROMIUM:-}" chromium chromium-browser google-chrome
}

find_chromedriver() {
    first_program "${IDEM_CHROMEDRIVER:-}" chromedriver
}

# The named one, or the first of the others that is there.
first_program() {
    local named=$1 program
    shift
    if [[ -n $named ]]; then
        command -v "$named"
        return
    fi
    for program; do
        if command -v "$program"; then
            return
        fi
    done
    return 1
}

# The Python that has the SDK: the one that IDEM_STRIPE_PYTHON names, or that of an environment of its own,
# which is made when it is not there (tests/support/harness/payment_sdk.rs).
tools_payment_sdk() {
    local wanted=16.1.0 python said
    local place=target/servers/stripe-$wanted
    python=${IDEM_STRIPE_PYTHON:-$place/bin/python}
    # An environment goes with the Python that it was made by.
    if [[ -z ${IDEM_STRIPE_PYTHON:-} && $(sdk_version "$python") != "$wanted" ]] && ! make_sdk "$place"; then
        echo "no $place, and it cannot be made here: that takes Python 3.10 or newer with venv"
        echo "and pip (Debian, Ubuntu: apt-get install python3-venv), and network"
        echo "set IDEM_STRIPE_PYTHON to a python that has the package stripe $wanted"
        return 1
    fi
    said=$(sdk_version "$python")
    if [[ $said != "$wanted" ]]; then
        echo "$python (IDEM_STRIPE_PYTHON) has not the package stripe $wanted, but: ${said:-none}"
        return 1
    fi
    echo "stripe $said for Python"
}

sdk_version() {
    "$1" -I -c 'import stripe; print(stripe.VERSION)' 2>/dev/null || true
}

# What is in it has hashes, as what fetch_server fetches.
make_sdk() {
    local place=$1 made code=0
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        install python3-venv || return
    fi
    echo "not there: $place; making it"
    mkdir -p "${place%/*}"
    # Beside its place, so that it appears there whole or not at all.
    made=$(mktemp -d "${place%/*}/make.XXXXXX")
    {
        python3 -m venv "$made/environment" &&
            "$made/environment/bin/python" -m pip --quiet --disable-pip-version-check install \
                --require-hashes --only-binary=:all: --requirement tests/support/harness/payment_sdk.txt &&
            rm -rf -- "$place" &&
            mv "$made/environment" "$place"
    } || code=$?
    rm -rf -- "$made"
    return "$code"
}
