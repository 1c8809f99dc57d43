//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use idem_runtime::admin::{Entries, Entry, EntryFilter};

use crate::state::StateFilter;
use crate::text::{parse_duration, parse_interval};

/// Inspects and settles the records of idem in a store.
///
/// Exit codes: 0 done; 1 no record, a finding of level `fail`, or nothing was changed; 2 wrong arguments; 3 the store
/// cannot be reached.
#[derive(Parser)]
#[command(name = "idem", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Print JSON: one document.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Where the records are.
#[derive(Args)]
pub(crate) struct Connection {
    /// URL of the store: `redis://`, `rediss://`, `unix://`, `redis+sentinel://host,host/service`,
    /// `redis+cluster://host,host`, `postgres://`, `mysql://`, `sqlite:file`. The password is better in `IDEM_PASSWORD`.
    #[arg(long, global = true, env = "IDEM_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// URL of the Redis in front of a `LayeredStore`'s `--store`: its copies of answers are withdrawn with them. The
    /// password is better in `IDEM_FRONT`.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "IDEM_FRONT",
        hide_env_values = true
    )]
    pub(crate) front: Option<String>,
    /// Prefix of the records: that of `Engine::builder(…).prefix(…)`.
    #[arg(long, global = true, default_value = "idem", env = "IDEM_PREFIX")]
    pub(crate) prefix: String,
    /// Table of the records, in SQL.
    #[arg(
        long,
        global = true,
        default_value = "idem_records",
        env = "IDEM_TABLE"
    )]
    pub(crate) table: String,
    /// How long to wait for a reply of the store.
    #[arg(long, global = true, default_value = "5s", value_parser = parse_interval)]
    pub(crate) timeout: Duration,
    /// The `max_attempts` of the functions, for `exhausted`.
    #[arg(long, global = true, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_attempts: u16,
    /// Certificate authorities to trust, PEM (feature `redis-tls`).
    #[arg(long, global = true, value_name = "FILE", env = "IDEM_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate to present, PEM; with `--cert-key` (feature `redis-tls`).
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "cert_key",
        env = "IDEM_CERT"
    )]
    pub(crate) cert: Option<PathBuf>,
    /// Key of `--cert`, PEM.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        requires = "cert",
        env = "IDEM_CERT_KEY"
    )]
    pub(crate) cert_key: Option<PathBuf>,
    /// Secret of `EngineBuilder::digest_key`: a file of 32 bytes, or of 64 hexadecimal digits (feature `digest-key`).
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) digest_key_file: Option<PathBuf>,
    /// Key of `EngineBuilder::encrypt` as `ID:FILE`, a file as for `--digest-key-file`; the first one encrypts (feature
    /// `encryption`).
    #[arg(long, global = true, value_name = "ID:FILE")]
    pub(crate) encryption_key_file: Vec<String>,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Checks the server: what holds the guarantee, what does not, and what to set.
    Doctor,
    /// Lists records.
    Ls(Ls),
    /// Shows everything about a record.
    Show(Show),
    /// Explains why the body of a call was started again: its attempts, in their order.
    Why(Why),
    /// Counts records by operation and state.
    Stats(Stats),
    /// Ends the claim of a crashed process before its lease is over.
    Release(Release),
    /// Gives a call of unknown outcome its answer.
    Resolve(Resolve),
    /// Takes a record back: the next call runs the body again.
    Reset(Reset),
    /// Removes records of an operation: as `reset`, and they expire within seconds. Without `--state`, answered and
    /// released ones; running records never, nor records written after the purge began. On Redis, an operation that
    /// cannot be told from others needs `--abbreviated`.
    Purge(Purge),
}

/// Selects a record.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("record").required(true).args(["key", "digest"]))]
pub(crate) struct Which {
    /// The operation: `op = "…"` of the function.
    pub(crate) operation: String,
    /// The key as JSON: `'"o-7"'`, `42`, `'["m-1", 7]'` for `key = (a, b)`; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    pub(crate) key: Option<String>,
    /// The format string of the function's key with empty placeholders, as `'{}/{}'`; `--key` is the list of its values.
    #[arg(long, value_name = "TEMPLATE", requires = "key")]
    pub(crate) key_format: Option<String>,
    /// The scope as JSON, where the function has one.
    #[arg(long, value_name = "JSON", requires = "key")]
    pub(crate) scope: Option<String>,
    /// The digest of the key, as logs and `ls` show it: 43 characters, or 64 hexadecimal digits.
    #[arg(long, value_name = "DIGEST", allow_hyphen_values = true)]
    pub(crate) digest: Option<String>,
}

#[derive(Args)]
pub(crate) struct Ls {
    /// The operation; without it, all of them.
    pub(crate) operation: Option<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Only records whose label contains this text.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// List the oldest records of the whole store instead of a page.
    #[arg(long, conflicts_with = "after")]
    pub(crate) oldest: bool,
    /// The most records to list.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Continue at the cursor of an earlier listing.
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,
    #[command(flatten)]
    pub(crate) scan: Scan,
}

/// Records of a listing.
#[derive(Args)]
pub(crate) struct Filter {
    /// Only records in this state.
    #[arg(long, value_enum)]
    pub(crate) state: Option<StateFilter>,
    /// Only records that were last written or renewed this long ago: `90s`, `15m`, `24h`, `7d`.
    #[arg(long, value_name = "AGE", value_parser = parse_duration)]
    older_than: Option<Duration>,
}

impl Filter {
    /// A listing of the state, of which some records may not [match](Self::matches).
    pub(crate) fn of(&self, entries: Entries) -> Entries {
        entries.state(self.state.map_or(EntryFilter::Any, StateFilter::entries))
    }

    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        self.older_than.is_none_or(|age| entry.age() >= age)
            && self.state.is_none_or(|state| state.is_of(entry))
    }
}

/// The pace of a scan.
#[derive(Args)]
pub(crate) struct Scan {
    /// Records to examine per second at most, to spare the server.
    #[arg(long, value_name = "RECORDS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: u32,
}

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Show the answer as well.
    #[arg(long)]
    pub(crate) value: bool,
    /// Show the idempotency key that the call sends to another party: that of `derive_key("LABEL")`, and that of a step of
    /// this name. May be repeated.
    #[arg(long, value_name = "LABEL")]
    pub(crate) derive: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Why {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The name of an instance, as `EngineBuilder::instance` has it: an attempt that crashed has left only a number of it.
    /// May be repeated.
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Stats {
    /// The operation; without it, all of them.
    pub(crate) operation: Option<String>,
    #[command(flatten)]
    pub(crate) scan: Scan,
}

/// A change that an operator makes.
#[derive(Args)]
pub(crate) struct Consent {
    /// Do not ask.
    #[arg(long)]
    pub(crate) yes: bool,
    /// Why the record is changed: `why` shows it. Stored in plain text, in at most 256 bytes.
    #[arg(long, value_name = "TEXT", value_parser = parse_text::<256>, allow_hyphen_values = true)]
    pub(crate) reason: Option<String>,
    /// Your name, for `why`, in at most 64 bytes.
    #[arg(long, value_name = "NAME", env = "IDEM_OPERATOR", value_parser = parse_text::<64>)]
    pub(crate) operator: Option<String>,
}

impl Consent {
    /// The entry, whose change is stored with name and reason.
    pub(crate) fn sign(&self, entry: Entry) -> Entry {
        let [operator, reason] =
            [&self.operator, &self.reason].map(|text| text.clone().unwrap_or_default());
        entry.signed(operator, reason)
    }
}

#[derive(Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Release the claim although it was renewed lately: its process seems to be alive.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("answer").required(true).args(["value", "error", "sample"]))]
pub(crate) struct Resolve {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The value as JSON, as the function's `Ok` value serializes; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    pub(crate) value: Option<String>,
    /// The business error as JSON, as the function's error serializes; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    pub(crate) error: Option<String>,
    /// Show the form of the operation's stored answers; change nothing.
    #[arg(long)]
    pub(crate) sample: bool,
    /// The status, where an answer is a response or a handler's `Reply`.
    #[arg(long, value_name = "CODE", requires = "value", value_parser = clap::value_parser!(u16).range(200..=599))]
    pub(crate) status: Option<u16>,
    /// A header of that response. May be repeated.
    #[arg(long, value_name = "NAME: VALUE", requires = "status")]
    pub(crate) header: Vec<String>,
    /// Do not compare the answer with the stored ones of the operation.
    #[arg(long)]
    pub(crate) unchecked: bool,
    /// Life of the answer, if longer than the rest of the record's.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Args)]
pub(crate) struct Reset {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Forget finished steps as well: the next call runs all of them.
    #[arg(long)]
    pub(crate) drop_steps: bool,
    /// The step did not happen: the next call runs it. For a step whose outcome is unknown. May be repeated.
    #[arg(long, value_name = "STEP", conflicts_with = "drop_steps")]
    pub(crate) not_done: Vec<String>,
    /// The step happened: the next call gets this `Ok` value, as serialized: `null` for `()`. For a step whose outcome
    /// is unknown. May be repeated.
    #[arg(long, value_name = "STEP=JSON", conflicts_with = "drop_steps", value_parser = parse_step)]
    pub(crate) done: Vec<(String, String)>,
    /// Leave other steps of unknown outcome to their `reconcile` hooks.
    #[arg(long, conflicts_with = "drop_steps")]
    pub(crate) reconciled: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
}

#[derive(Args)]
pub(crate) struct Purge {
    /// The operation; with `--expired` it is left out.
    #[arg(required_unless_present = "expired")]
    pub(crate) operation: Option<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Delete the rows of expired records (SQL), of every operation and prefix; Redis does that itself.
    #[arg(long, conflicts_with_all = ["operation", "state", "older_than"])]
    pub(crate) expired: bool,
    /// The most records to remove in a second.
    #[arg(long, value_name = "RECORDS", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub(crate) remove_rate: u32,
    /// Remove the records of every operation with the same abbreviated name: on Redis, the first 48 bytes, with `_` for
    /// characters other than letters, digits and `.:_-`.
    #[arg(long, conflicts_with = "expired")]
    pub(crate) abbreviated: bool,
    /// Count only.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) consent: Consent,
    #[command(flatten)]
    pub(crate) scan: Scan,
}

fn parse_text<const MOST: usize>(text: &str) -> Result<String, String> {
    match text.len() {
        bytes if bytes <= MOST => Ok(text.to_owned()),
        bytes => Err(format!(
            "it has {bytes} bytes, and {MOST} are stored: shorten it"
        )),
    }
}

/// The name of a step, and its value.
fn parse_step(text: &str) -> Result<(String, String), String> {
    let wrong = || {
        "write the name of the step, `=` and its value as JSON: `charge={\"id\":\"ch_1\"}`"
            .to_owned()
    };
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    match serde_json::from_str::<serde::de::IgnoredAny>(value) {
        Ok(_) => Ok((name.to_owned(), value.to_owned())),
        Err(_) => Err(format!(
            "the value is not JSON: a text needs quotation marks; {}",
            wrong()
        )),
    }
}
