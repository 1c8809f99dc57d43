//! Databases that are measured by the processes that they run in.

use std::collections::HashMap;
use std::fs;

use super::suite::Meter;

/// All processes that this one has started, and theirs.
#[derive(Debug)]
pub(crate) struct ProcessMeter;

impl Meter for ProcessMeter {
    fn cpu_micros(&mut self) -> Option<f64> {
        let ours = descendants(std::process::id());
        let spent: f64 = ours.iter().filter_map(|id| spent_micros(*id)).sum();
        (!ours.is_empty()).then_some(spent)
    }
}

fn descendants(of: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(id) = id
            && let Some(parent) = parent(id)
        {
            children.entry(parent).or_default().push(id);
        }
    }
    let (mut all, mut next) = (Vec::new(), vec![of]);
    while let Some(id) = next.pop() {
        let theirs = children.remove(&id).unwrap_or_default();
        all.extend(&theirs);
        next.extend(theirs);
    }
    all
}

/// `None` if it has ended meanwhile.
fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // Its name is in brackets, and may be anything.
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(1)?.parse().ok()
}

/// Of all its threads.
fn spent_micros(id: u32) -> Option<f64> {
    let mut nanos = 0.0;
    for thread in fs::read_dir(format!("/proc/{id}/task")).ok()?.flatten() {
        let stat = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        let first = stat
            .split_whitespace()
            .next()
            .and_then(|spent| spent.parse::<f64>().ok());
        nanos += first.unwrap_or_default();
    }
    Some(nanos / 1e3)
}
