//! The command line of the soak.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use crate::stores;

/// Settings of a run.
#[derive(Clone, Debug, Parser)]
#[command(
    args_override_self = true,
    name = "soak",
    bin_name = "scripts/test soak",
    about = "Calls, faults and a checker: see docs/soak.md"
)]
pub(crate) struct Options {
    /// Store; may be repeated [default: all]
    #[arg(long = "store", value_name = "NAME", value_parser = PossibleValuesParser::new(stores::ALL))]
    stores: Vec<String>,
    /// Minimum of calls for each store
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub(crate) calls: u64,
    /// Minimum of faults for each store
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) faults: usize,
    /// End of each store's run, whatever it has reached
    #[arg(long, value_name = "N", value_parser = minutes)]
    pub(crate) minutes: Option<Duration>,
    /// Schedule of the faults and content of the calls [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Keep the journals of a run without violations, too
    #[arg(long)]
    pub(crate) keep: bool,
    /// Kill processes and cut connections only, with a lease of 30 s: independent of the machine's speed
    #[arg(long)]
    pub(crate) gentle: bool,
    /// First port on loopback for metrics: one for each process, and one for the count of unknown records
    #[arg(long, value_name = "PORT")]
    pub(crate) metrics: Option<u16>,
    /// Factor of the pauses between faults, for graphs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) pauses: u64,
    /// Check this kept directory of journals again, as those of `--store`
    #[arg(long, value_name = "DIR")]
    pub(crate) check: Option<PathBuf>,
}

impl Options {
    /// The stores to run, one after the other.
    pub(crate) fn stores(&self) -> Vec<String> {
        if self.stores.is_empty() {
            stores::ALL.map(ToOwned::to_owned).into()
        } else {
            self.stores.clone()
        }
    }

    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(if self.gentle { 30 } else { 1 })
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse().ok().filter(|minutes: &f64| *minutes > 0.0);
    let duration = minutes.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok());
    duration.ok_or_else(|| "not a positive number of minutes".to_owned())
}
