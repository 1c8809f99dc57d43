#!/usr/bin/env bash
# What `#[idempotent]` costs to compile: a service with 100 async functions beside the same service with the
# attribute on each of them, and with the same by hand: each function encodes its request for a fingerprint, encodes
# its answer, and decodes a stored one, with serde_json and functions that are compiled once. See docs/performance.md.
#
#   scripts/compile_time.sh [rounds] [command ...]     commands: check build test release incremental
#
# The services are generated. Each function has a request and a receipt of its own, which derive Serialize and
# Deserialize, awaits a bank and a ledger, and fails with `?` into the crate's error. Each is called by a handler
# that decodes the request from JSON and encodes the receipt, as a web framework would, and by one test. What is
# timed is the crate alone, linked, with everything below it built: all take turns, and the medians count.
# `incremental` is a build after a change in one function, with what cargo kept of the last one.
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${1:-5}
shift || true
commands=("$@")
((${#commands[@]})) || commands=(check build test release incremental)
repository=$PWD
work=${IDEM_COMPILE_TIME:-$repository/target/compile_time}
functions=${FUNCTIONS:-100}
export CARGO_TARGET_DIR=$work/target
mkdir -p "$work"

manifest() {
    cat <<TOML
[package]
name = "$1"
edition = "2024"
publish = false

[dependencies]
serde = { version = "1", features = ["derive"] }
serde_json = "1"
tokio = { version = "1", features = ["macros", "rt"] }
TOML
    # All have it to link with, so that what is compared is the attribute.
    echo "idem-runtime = { path = \"$repository/idem-runtime\" }"
}

# The types, the functions and the tests of ten operations.
module() {
    local service=$1 module=$2 i
    cat <<RUST
use serde::{Deserialize, Serialize};

use crate::world::{Bank, Currency, Ledger, Line, ServiceError, Status};

RUST
    for ((i = module * 10; i < module * 10 + 10; i++)); do
        cat <<RUST
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request$i {
    pub order: String,
    pub customer: u64,
    pub currency: Currency,
    pub amount: u64,
    pub note: Option<String>,
    pub lines: Vec<Line>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Receipt$i {
    pub id: String,
    pub status: Status,
    pub total: u64,
    pub balance: Option<i64>,
}

RUST
        if [[ $service == idempotent ]]; then
            if ((i % 4 == 3)); then
                echo "#[idem_runtime::idempotent(op = \"shop.operation$i\", ttl = \"24h\")]"
            else
                echo "#[idem_runtime::idempotent(op = \"shop.operation$i\", key = request.order, ttl = \"24h\")]"
            fi
        fi
        local skip='' name=operation$i
        [[ $service == idempotent ]] && skip="#[idem(skip)] "
        if [[ $service == by_hand ]]; then
            name=perform$i
            cat <<RUST
pub async fn operation$i(bank: &Bank, ledger: &Ledger, request: Request$i) -> Result<Receipt$i, ServiceError> {
    let fingerprint = serde_json::to_vec(&request)?;
    if let Some(answer) = crate::world::claim("shop.operation$i", &request.order, fingerprint).await? {
        return serde_json::from_slice(&answer)?;
    }
    let answer = perform$i(bank, ledger, request).await;
    crate::world::complete("shop.operation$i", serde_json::to_vec(&answer)?).await?;
    answer
}

RUST
        fi
        cat <<RUST
pub async fn $name(${skip}bank: &Bank, ${skip}ledger: &Ledger, request: Request$i) -> Result<Receipt$i, ServiceError> {
    let total = request.lines.iter().map(|line| line.price * u64::from(line.count)).sum::<u64>() + $i;
    if total != request.amount {
        return Err(ServiceError::Amount { expected: total });
    }
    let id = bank.charge(request.customer, total, request.currency).await?;
    let balance = ledger.book(&id, total).await?;
    Ok(Receipt$i { id, status: Status::Done, total, balance })
}

RUST
    done
    cat <<RUST
#[cfg(test)]
mod tests {
    use super::*;
RUST
    for ((i = module * 10; i < module * 10 + 10; i++)); do
        cat <<RUST

    #[tokio::test]
    async fn operation${i}_charges() {
        let (bank, ledger) = crate::world::open();
        let lines = vec![Line { article: 1, price: 5, count: 2 }];
        let request = Request$i {
            order: "order-$i".to_owned(),
            customer: 7,
            currency: Currency::Eur,
            amount: 10 + $i,
            note: None,
            lines,
        };
        let receipt = crate::world::run(operation$i(&bank, &ledger, request)).await.unwrap();
        assert_eq!(receipt.total, 10 + $i);
    }
RUST
    done
    echo "}"
}

# What the functions share.
world() {
    local service=$1
    cat <<RUST
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Currency { Eur, Usd }

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Status { Done, Refused }

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line { pub article: u64, pub price: u64, pub count: u32 }

RUST
    if [[ $service == idempotent ]]; then
        cat <<RUST
#[derive(Clone, Debug, Serialize, Deserialize, idem_runtime::Classify)]
pub enum ServiceError {
    #[class(business)]
    Amount { expected: u64 },
    #[class(business)]
    Declined(String),
    #[class(system)]
    Network,
    #[class(system)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for ServiceError {
    fn from(error: idem_runtime::Error) -> Self { Self::Idempotency(error) }
}

/// Under an engine.
pub async fn run<F: Future>(call: F) -> F::Output {
    let engine = idem_runtime::Engine::new(idem_runtime::store::memory::MemoryStore::new());
    engine.scope(call).await
}
RUST
    else
        cat <<RUST
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ServiceError {
    Amount { expected: u64 },
    Declined(String),
    Network,
}

/// Under no engine.
pub async fn run<F: Future>(call: F) -> F::Output {
    call.await
}
RUST
    fi
    [[ $service == by_hand ]] && cat <<RUST

impl From<serde_json::Error> for ServiceError {
    fn from(_: serde_json::Error) -> Self { Self::Network }
}

pub async fn claim(operation: &str, key: &str, fingerprint: Vec<u8>) -> Result<Option<Vec<u8>>, ServiceError> {
    tokio::task::yield_now().await;
    Ok((operation == key).then_some(fingerprint))
}

pub async fn complete(operation: &str, answer: Vec<u8>) -> Result<(), ServiceError> {
    tokio::task::yield_now().await;
    if operation.is_empty() || answer.is_empty() { Err(ServiceError::Network) } else { Ok(()) }
}
RUST
    cat <<'RUST'

pub struct Bank(pub u64);
pub struct Ledger(pub i64);

pub fn open() -> (Bank, Ledger) { (Bank(u64::MAX), Ledger(0)) }

impl Bank {
    pub async fn charge(&self, customer: u64, amount: u64, currency: Currency) -> Result<String, ServiceError> {
        tokio::task::yield_now().await;
        if amount > self.0 { return Err(ServiceError::Declined(format!("{customer}: {currency:?}"))); }
        Ok(format!("charge-{customer}-{amount}"))
    }
}

impl Ledger {
    pub async fn book(&self, id: &str, amount: u64) -> Result<Option<i64>, ServiceError> {
        tokio::task::yield_now().await;
        if id.is_empty() { return Err(ServiceError::Network); }
        Ok(i64::try_from(amount).ok().map(|amount| self.0 + amount))
    }
}

pub type Handled<'a> = std::pin::Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

pub fn decode<'de, T: Deserialize<'de>>(request: &'de [u8]) -> Result<T, String> {
    serde_json::from_slice(request).map_err(|error| error.to_string())
}

pub fn encode<T: Serialize>(answer: Result<T, ServiceError>) -> Result<String, String> {
    let answer = answer.map_err(|error| serde_json::to_string(&error).unwrap_or_default())?;
    serde_json::to_string(&answer).map_err(|error| error.to_string())
}
RUST
}

program() {
    local i
    for ((i = 0; i < functions / 10; i++)); do echo "mod shop$i;"; done
    cat <<'RUST'
mod world;

use world::{Bank, Handled, Ledger, decode, encode};

fn handle<'a>(bank: &'a Bank, ledger: &'a Ledger, operation: &str, request: &'a [u8]) -> Handled<'a> {
    match operation {
RUST
    for ((i = 0; i < functions; i++)); do
        cat <<RUST
        "operation$i" => Box::pin(async move {
            encode(shop$((i / 10))::operation$i(bank, ledger, decode(request)?).await)
        }),
RUST
    done
    cat <<'RUST'
        _ => Box::pin(async { Err("no such operation".to_owned()) }),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (bank, ledger) = world::open();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (operation, request) = line.split_once(' ').unwrap_or((&line, ""));
        println!("{:?}", world::run(handle(&bank, &ledger, operation, request.as_bytes())).await);
    }
}

#[cfg(test)]
#[tokio::test]
async fn what_is_no_request_is_refused() {
    let (bank, ledger) = world::open();
    assert!(world::run(handle(&bank, &ledger, "operation0", b"{}")).await.is_err());
}
RUST
}

services=(plain by_hand idempotent)
for name in "${services[@]}"; do
    rm -rf -- "${work:?}/$name"
    mkdir -p "$work/$name/src"
    manifest "$name" >"$work/$name/Cargo.toml"
    program >"$work/$name/src/main.rs"
    world "$name" >"$work/$name/src/world.rs"
    for ((m = 0; m < functions / 10; m++)); do module "$name" "$m" >"$work/$name/src/shop$m.rs"; done
done
cat >"$work/Cargo.toml" <<'TOML'
[workspace]
resolver = "3"
members = ["plain", "by_hand", "idempotent"]

[profile.edited]
inherits = "dev"
TOML
cp Cargo.lock "$work/Cargo.lock"

# One build of one service, with everything below it built: milliseconds, those of the processor behind them.
once() {
    local command=$1 name=$2
    local cargo=(cargo)
    export CARGO_INCREMENTAL=0
    case $command in
    check) cargo+=(check) ;;
    build) cargo+=(build) ;;
    test) cargo+=(test --no-run) ;;
    release) cargo+=(build --release) ;;
    incremental)
        cargo+=(build --profile edited)
        CARGO_INCREMENTAL=1
        # Another number in the body of one function.
        edit=$((${edit:-100} + 1))
        sed -i "0,/sum::<u64>() + [0-9]*;/s//sum::<u64>() + $edit;/" "$work/$name/src/shop0.rs"
        ;;
    *) echo "no such command: $command" >&2 && return 2 ;;
    esac
    touch "$work/$name/src/main.rs"
    TIMEFORMAT='%R %U %S'
    { time "${cargo[@]}" --offline --quiet --manifest-path "$work/Cargo.toml" -p "$name" 2>&3; } 3>&2 2>"$work/time"
    awk '{ printf "%d %d\n", $1 * 1000, ($2 + $3) * 1000 }' "$work/time"
}

median() {
    cut -d' ' -f"$1" "$work/$2.times" | sort -n | awk '{ times[NR] = $1 } END { print times[int((NR + 1) / 2)] }'
}

# The medians of all, and their ratios to the plain service.
compared() {
    local plain name time
    plain=$(median "$1" plain)
    printf ' %7d' "$plain"
    for name in by_hand idempotent; do
        time=$(median "$1" "$name")
        printf ' %7d %5s' "$time" "$(awk "BEGIN { printf \"%.2f\", $time / $plain }")"
    done
}

printf '%-11s | %s | %s | %s\n' "" "plain, by hand, idempotent: ms" "ms of processor" "bytes of the program"
for command in "${commands[@]}"; do
    for name in "${services[@]}"; do : >"$work/$name.times" && once "$command" "$name" >/dev/null; done
    for ((round = 0; round < rounds; round++)); do
        for name in "${services[@]}"; do once "$command" "$name" >>"$work/$name.times"; done
    done
    case $command in
    build) sizes=$(cd "$CARGO_TARGET_DIR/debug" && stat -c %s "${services[@]}" | xargs) ;;
    release) sizes=$(cd "$CARGO_TARGET_DIR/release" && stat -c %s "${services[@]}" | xargs) ;;
    *) sizes= ;;
    esac
    printf '%-11s |%s |%s | %s\n' "$command" "$(compared 1)" "$(compared 2)" "$sizes"
done
