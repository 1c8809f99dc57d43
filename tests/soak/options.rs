//! What the command line says.

use std::path::PathBuf;
use std::time::Duration;

use crate::stores;

/// Settings of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) stores: Vec<String>,
    pub(crate) calls: u64,
    pub(crate) faults: usize,
    pub(crate) minutes: Option<f64>,
    pub(crate) seed: Option<u64>,
    pub(crate) keep: bool,
    pub(crate) gentle: bool,
    /// A directory that was kept, to be checked again.
    pub(crate) check: Option<PathBuf>,
}

/// What can be said.
pub(crate) const USAGE: &str = "\
soak [--store NAME]… [--calls N] [--faults N] [--minutes N] [--seed N] [--keep] [--gentle] [--check DIR]
  --store    one of the stores, again for another one; all of them unless told
  --calls    at least so many calls a store; 1,000,000 unless told
  --faults   at least so many faults a store; 1,000 unless told
  --minutes  an end for each store, whatever it has reached
  --seed     the schedule of the faults and what calls do; another one each time unless told
  --keep     keeps the journals of a run without violations, too
  --check    a directory of journals that was kept, to be checked again as those of `--store`
  --gentle   kills processes and cuts connections, no more, with a lease of 30 s: nothing depends on how
             fast the machine is";

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            stores: Vec::new(),
            calls: 1_000_000,
            faults: 1_000,
            minutes: None,
            seed: None,
            keep: false,
            gentle: false,
            check: None,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let flag = match &**word {
                "--keep" => Some(&mut options.keep),
                "--gentle" => Some(&mut options.gentle),
                _ => None,
            };
            if let Some(flag) = flag {
                *flag = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
            let not = |_| format!("{word} {value} is no number");
            match &**word {
                "--store" if stores::ALL.contains(&&**value) => options.stores.push(value.clone()),
                "--store" => {
                    let all = stores::ALL.join(" ");
                    return Err(format!("no store {value}; there are: {all}"));
                }
                "--calls" => options.calls = value.parse().map_err(not)?,
                "--faults" => options.faults = value.parse().map_err(not)?,
                "--check" => options.check = Some(value.into()),
                "--seed" => options.seed = Some(value.parse().map_err(not)?),
                "--minutes" => {
                    let minutes = value.parse().ok().filter(|minutes| *minutes > 0.0);
                    options.minutes = Some(minutes.ok_or(format!("{word} {value} is no time"))?);
                }
                _ => return Err(format!("no option {word}")),
            }
        }
        if options.stores.is_empty() {
            options.stores = stores::ALL.map(ToOwned::to_owned).into();
        }
        Ok(options)
    }

    /// The lease of all calls.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_secs(if self.gentle { 30 } else { 1 })
    }

    /// The end of a store's run.
    pub(crate) fn most(&self) -> Option<Duration> {
        self.minutes
            .map(|minutes| Duration::from_secs_f64(minutes * 60.0))
    }
}
