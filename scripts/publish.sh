# What a user of the published crates gets: the packages, the compiler that they need, the oldest dependencies that they
# allow, and their features in pairs. A part of scripts/test, which has `published`, `private` and a Redis.

# The workspace of the published crates alone, in this directory: without development dependencies, which would add
# features to the dependencies of the library.
published_only() {
    local place=$1 name
    rm -rf -- "$place"
    mkdir -p "$place"
    sed 's/^members = .*/members = ["idem-cli", "idem-conformance", "idem-consumers", "idem-macros", "idem-runtime"]/
        /^default-members = /d; /^exclude = /d; /^\[profile\.[a-z]*\.package/,$d' Cargo.toml >"$place/Cargo.toml"
    for name in "${published[@]}"; do
        cp -RLp "$name" "$place/$name"
        # The tables of dependencies for tests, and of benchmarks, which are not there.
        awk '/^\[/ { skip = $0 == "[dev-dependencies]" || $0 == "[[bench]]" } !skip' "$name/Cargo.toml" \
            >"$place/$name/Cargo.toml"
    done
    cp Cargo.lock "$place/Cargo.lock"
}

# The compiler that each feature needs, by what its dependencies declare in the newest versions that cargo chooses for
# our `rust-version`, and what the feature's description says.
needed_rust() {
    local place=target/published/needed name
    published_only "$place"
    rm "$place/Cargo.lock"
    for name in idem-runtime idem-cli idem-conformance idem-consumers; do
        python3 scripts/needed_rust.py "$place/Cargo.toml" "$name/Cargo.toml"
    done
}

# The oldest versions that our requirements allow, of the crates that we name. Takes the options of the check.
minimal_versions() {
    local place=target/published/minimal
    published_only "$place"
    rm "$place/Cargo.lock"
    # An option of cargo that is not stable. The build does not see the variable.
    RUSTC_BOOTSTRAP=1 cargo update --quiet --manifest-path "$place/Cargo.toml" -Z direct-minimal-versions
    CARGO_TARGET_DIR=target cargo check --quiet --locked --manifest-path "$place/Cargo.toml" "$@"
}

# Pairs of features, without those whose code no other feature looks at; each of these is checked alone by `features`.
# The library only, with nothing but its own dependencies.
feature_pairs() {
    local version=0.6.46 place=target/tools/cargo-hack crates=target/published/pairs
    local alone=redis-tls,default
    if [[ $("$place/bin/cargo-hack" hack --version 2>/dev/null) != "cargo-hack $version" ]]; then
        echo "no cargo-hack $version in $place: building it"
        CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --debug --locked --force \
            --root "$place" cargo-hack --version "$version"
    fi
    published_only "$crates"
    # Private features, which others enable, are no choice of a user.
    CARGO_TARGET_DIR=target "$place/bin/cargo-hack" hack check --manifest-path "$crates/idem-runtime/Cargo.toml" \
        --feature-powerset --depth 2 --exclude-features "$alone,_certificates,_sql,_server" --exclude-no-default-features
}

# What `cargo publish` checks beyond the packages, without an upload.
publish_nowhere() {
    local options=(--dry-run --no-verify) name
    for name in "${published[@]}"; do
        options+=(-p "$name")
    done
    if [[ -n $(git status --porcelain 2>/dev/null || echo "no git") ]]; then
        options+=(--allow-dirty)
    fi
    cargo publish --quiet "${options[@]}"
}

# Two programs of a new user, built from the unpacked packages alone, and run: the quick start of the README, and the
# same on Redis, twice.
program_of_packages() {
    local place=target/published/user version name
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
    rm -rf -- "$place"
    mkdir -p "$place/shop/src/bin"
    for name in idem-macros idem-runtime; do
        tar -xzf "$(target_directory)/package/$name-$version.crate" -C "$place"
    done
    cat >"$place/shop/Cargo.toml" <<EOF
[package]
name = "shop"
version = "0.1.0"
edition = "2024"

[dependencies]
idem-runtime = "$version"
serde = { version = "1", features = ["derive"] }
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[patch.crates-io]
idem-macros = { path = "../idem-macros-$version" }
idem-runtime = { path = "../idem-runtime-$version" }

[workspace]
EOF
    # The versions of our own lock file: nothing is fetched that is not there.
    cp Cargo.lock "$place/shop/Cargo.lock"
    sed -n '/^## Quick start/,/^## /{/^```rust/,/^```$/{/^```/!p}}' README.md >"$place/shop/src/bin/memory.rs"
    # As the README says it.
    sed 's/store::memory::MemoryStore/store::redis::RedisStore/
        s|MemoryStore::new()|RedisStore::connect(\&*std::env::var("REDIS_URL")?).await?|' \
        "$place/shop/src/bin/memory.rs" >"$place/shop/src/bin/redis.rs"
    if ! grep -q RedisStore::connect "$place/shop/src/bin/redis.rs"; then
        echo "the quick start of the README has no memory store"
        return 1
    fi
    (cd "$place/shop" && CARGO_TARGET_DIR=../../../user cargo build --quiet --offline)
    # Both print what the README says, and so does a second run on Redis.
    local says="$place/says" run
    sed -n '/^## Quick start/,/^## /{/^```text/,/^```$/{/^```/!p}}' README.md >"$says"
    target/user/debug/memory | diff "$says" -
    start_redis
    for run in first again; do
        echo "on Redis, $run"
        REDIS_URL=redis://127.0.0.1:$redis_port target/user/debug/redis | diff "$says" -
    done
    stop_redis
}

# The service of the guide's page `start`, by the commands of that page: they name every crate and feature that it needs.
# Comes after the other two programs, and takes the packages that these have unpacked.
service_of_packages() {
    local place=target/published/user/service page=idem-runtime/src/docs/guide/start.md version line name known
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
    rm -rf -- "$place"
    mkdir -p "$place/src"
    cat >"$place/Cargo.toml" <<EOF
[package]
name = "service"
version = "0.1.0"
edition = "2024"

[patch.crates-io]
idem-macros = { path = "../idem-macros-$version" }

[workspace]
EOF
    sed -n '/^```rust/,/^```$/{/^```/!p}' "$page" >"$place/src/main.rs"
    while read -r line; do
        name=$(cut -d ' ' -f 3 <<<"$line")
        if [[ $name == idem-runtime ]]; then
            known=" --path ../idem-runtime-$version "
        else
            # The version of our own lock file, which is there.
            known=" $name@$(sed -n "/^name = \"$name\"/{n;s/version = \"\(.*\)\"/\1/p;q}" Cargo.lock) "
        fi
        echo "$line"
        line="${line/ $name/$known} --quiet --offline"
        # Words of the page, without quotes.
        # shellcheck disable=SC2086
        (cd "$place" && $line)
    done < <(grep '^cargo add' "$page")
    # Of each command's own lock file nothing is left that the command did not need.
    cp Cargo.lock "$place/Cargo.lock"
    (cd "$place" && CARGO_TARGET_DIR=../../../user cargo build --quiet --offline)
}

# The published crates with the oldest compiler that they declare, with the newest dependencies that cargo chooses for it: the
# default features, and all that need no newer one. Not among the steps of a run without arguments.
step_msrv() {
    local rust place=target/published/msrv named=()
    rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' idem-runtime/Cargo.toml)
    # Where cargo is not of rustup, the variable has no effect.
    if [[ $(RUSTUP_TOOLCHAIN=$rust cargo --version 2>&1) != "cargo $rust."* ]]; then
        echo "no Rust $rust: rustup toolchain install $rust --profile minimal"
        return 1
    fi
    published_only "$place"
    rm "$place/Cargo.lock"
    mapfile -t named < <(sed -n '/^## .*Needs Rust/{n;b}; /^## /{n;s/ = .*//p}' idem-runtime/Cargo.toml)
    local options
    for options in default "$(IFS=,; echo "${named[*]}")"; do
        RUSTUP_TOOLCHAIN=$rust CARGO_TARGET_DIR=target/msrv cargo check --quiet --features "$options" \
            --manifest-path "$place/idem-runtime/Cargo.toml"
    done
    RUSTUP_TOOLCHAIN=$rust CARGO_TARGET_DIR=target/msrv cargo check --quiet -p idem-cli -p idem-conformance \
        --manifest-path "$place/Cargo.toml"
    mapfile -t named < <(sed -n '/^## .*Needs Rust/{n;b}; /^## /{n;s/ = .*//p}' idem-consumers/Cargo.toml)
    RUSTUP_TOOLCHAIN=$rust CARGO_TARGET_DIR=target/msrv cargo check --quiet --features "$(IFS=,; echo "${named[*]}")" \
        --manifest-path "$place/idem-consumers/Cargo.toml"
}

# The documentation as docs.rs builds it: with the features that each item needs. Its options are not stable; only
# rustdoc is told so, because cargo would build the dependencies anew.
docs_rs() {
    RUSTDOC=$PWD/scripts/rustdoc \
        RUSTDOCFLAGS="-D warnings --cfg docsrs --generate-link-to-definition --out-dir $(target_directory)/doc" \
        cargo test --quiet --workspace --all-features --doc
}
