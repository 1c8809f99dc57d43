//! A history of calls from several processes, and a checker of its validity.
//!
//! Time is the server's clock in microseconds, and so is a fence: it is the time at which its claim was
//! granted.

use std::collections::{BTreeMap, HashMap, HashSet};

/// The lines of all processes, and the faults injected into them.
#[derive(Debug, Default)]
pub struct History {
    keys: BTreeMap<String, Key>,
    /// Calls that have begun and not ended.
    open: HashMap<(usize, u64), Call>,
    killed: HashSet<usize>,
    lapses: Vec<(u64, u64)>,
    mistakes: Vec<String>,
    returns: usize,
}

#[derive(Debug, Default)]
struct Key {
    starts: Vec<Start>,
    effects: u64,
    /// Answers, and the time at which a caller first received each.
    answers: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct Call {
    key: String,
    invoked: u64,
}

#[derive(Debug)]
struct Start {
    process: usize,
    call: u64,
    invoked: u64,
    started: u64,
    fence: u64,
    /// The body ended with an error that releases the key.
    failed: bool,
}

impl History {
    /// Takes a line of a process. Processes have numbers of their own, also after a restart.
    ///
    /// ```text
    /// invoke <call> <key> <time>
    /// start <call> <key> <time> <fence> <attempt>    the body begins
    /// effect <call> <key>
    /// failed <call> <key>                            the body ends with a system error
    /// return <call> <key> <time> <answer>
    /// end <call> <key> <why>                         the call ends without an answer
    /// event unsaved…
    /// ```
    pub fn line(&mut self, process: usize, line: &str) {
        if self.take(process, line).is_none() {
            self.mistakes.push(format!("not understood: {line}"));
        }
    }

    fn take(&mut self, process: usize, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        let what = words.next()?;
        if what == "event" {
            if line.contains("unsaved") {
                self.mistakes.push(format!("process {process}: {line}"));
            }
            return Some(());
        }
        let call = words.next()?.parse().ok()?;
        let name = words.next()?;
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let key = self.keys.entry(name.to_owned()).or_default();
        let start = |start: &&mut Start| (start.process, start.call) == (process, call);
        match what {
            "invoke" => {
                let begun = Call {
                    key: name.to_owned(),
                    invoked: number()?,
                };
                self.open.insert((process, call), begun);
            }
            "start" => key.starts.push(Start {
                process,
                call,
                invoked: self.open.get(&(process, call))?.invoked,
                started: number()?,
                fence: number()?,
                failed: false,
            }),
            "effect" => key.effects += 1,
            "failed" => key.starts.iter_mut().find(start)?.failed = true,
            "return" => {
                let time = number()?;
                let answer = key.answers.entry(words.next()?.to_owned());
                let first = answer.or_insert(time);
                *first = time.min(*first);
                self.returns += 1;
                self.open.remove(&(process, call))?;
            }
            "end" => drop(self.open.remove(&(process, call))?),
            _ => return None,
        }
        Some(())
    }

    /// Records that the process was killed; its open calls need not end.
    pub fn killed(&mut self, process: usize) {
        self.killed.insert(process);
    }

    /// Records that every lease lapsed between these two times.
    pub fn lapsed(&mut self, from: u64, to: u64) {
        self.lapses.push((from, to));
    }

    pub fn keys(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// Number of calls with an answer, and of bodies that began.
    pub fn size(&self) -> (usize, usize) {
        let starts = self.keys.values().map(|key| key.starts.len());
        (self.returns, starts.sum())
    }

    /// Violations of the guarantees. `effects` is the counted number of effects of a key.
    pub fn violations(&self, effects: impl Fn(&str) -> u64) -> Vec<String> {
        let mut found = self.mistakes.clone();
        for ((process, call), open) in &self.open {
            if !self.killed.contains(process) {
                found.push(format!("{}: call {process}/{call} never ended", open.key));
            }
        }
        for (name, key) in &self.keys {
            let counted = effects(name);
            for violation in self.of_key(key, counted) {
                found.push(format!("{name}: {violation}; {key:?}"));
            }
        }
        found
    }

    fn of_key(&self, key: &Key, effects: u64) -> Vec<String> {
        let mut found = Vec::new();
        if key.answers.len() > 1 {
            found.push("different answers".to_owned());
        }
        if key.answers.is_empty() {
            found.push("no answer".to_owned());
        }
        let answered = key.answers.values().min().copied().unwrap_or(u64::MAX);
        let mut starts: Vec<_> = key.starts.iter().collect();
        starts.sort_by_key(|start| start.fence);
        for start in &starts {
            if start.fence > answered {
                found.push(format!(
                    "started with fence {} after an answer",
                    start.fence
                ));
            }
            let later = starts.iter().filter(|later| later.invoked > start.started);
            for later in later.filter(|later| later.fence <= start.fence) {
                found.push(format!("a later call has the lower fence {}", later.fence));
            }
        }
        for pair in starts.windows(2) {
            let (first, second) = (pair[0], pair[1]);
            if first.fence == second.fence {
                found.push(format!("fence {} twice", first.fence));
            }
            let lapsed = |&(from, to): &(u64, u64)| first.fence <= to && second.fence >= from;
            if !first.failed && !self.lapses.iter().any(lapsed) {
                found.push(format!("start {} is not explained", second.fence));
            }
        }
        // A killed process may have had its effect without reporting it.
        if effects < key.effects || effects > starts.len() as u64 {
            let (told, starts) = (key.effects, starts.len());
            found.push(format!(
                "{effects} effects, {told} of them told, of {starts} starts"
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that begins its body, and has an answer that another call replays.
    const BEGUN: &str = "0 invoke 1 k 100|0 start 1 k 111 110 1|0 effect 1 k";
    const REPLAYED: &str = "0 return 1 k 120 x|1 invoke 1 k 130|1 return 1 k 140 x";
    /// Another body begins meanwhile.
    const TWICE: &str =
        "1 invoke 1 k 105|1 start 1 k 116 115 2|1 return 1 k 120 x|0 return 1 k 121 x";

    /// Further lines of a history, the effects that were counted, and the violation.
    const ROWS: &str = "\
REPLAYED; ; 1;
REPLAYED; 1 invoke 2 k 150|1 return 2 k 160 y; 1; different answers
REPLAYED; lapsed 125 126|1 invoke 2 k 150|1 start 2 k 161 160 2|1 return 2 k 170 x; 1; started with fence 160 after an answer
; lapsed 105 115|1 invoke 1 k 105|1 start 1 k 112 110 2; 1; fence 110 twice
; 1 invoke 1 k 115|1 start 1 k 121 109 2; 1; a later call has the lower fence 109
TWICE; ; 1; start 115 is not explained
TWICE; killed 0 0; 1; start 115 is not explained
TWICE; lapsed 117 118; 1; start 115 is not explained
TWICE; lapsed 112 113; 2;
TWICE; 0 failed 1 k; 2;
REPLAYED; ; 2; 2 effects, 1 of them told, of 1 starts
REPLAYED; ; 0; 0 effects, 1 of them told, of 1 starts
REPLAYED; 2 invoke 9 k 150; 1; call 2/9 never ended
REPLAYED; 2 invoke 9 k 150|killed 2 0; 1;
REPLAYED; 0 event unsaved: no reply; 1; unsaved
; ; 1; no answer
REPLAYED; 0 nonsense; 1; not understood";

    #[test]
    fn each_history_has_its_violation() {
        for row in ROWS.lines() {
            let [lines, further, effects, expected] =
                [0, 1, 2, 3].map(|part| row.split(';').nth(part).unwrap().trim());
            let lines = match lines {
                "REPLAYED" => REPLAYED,
                "TWICE" => TWICE,
                _ => "",
            };
            let mut history = History::default();
            let lines = [BEGUN, lines, further].map(|lines| lines.split('|'));
            for line in lines.into_iter().flatten().filter(|line| !line.is_empty()) {
                let (first, rest) = line.split_once(' ').expect("two words");
                let number = |text: &str| text.parse().expect("a number");
                match (first, rest.split_once(' ')) {
                    ("lapsed", Some((from, to))) => history.lapsed(number(from), number(to)),
                    ("killed", Some((process, _))) => {
                        history.killed(process.parse().expect("a number"));
                    }
                    _ => history.line(first.parse().expect("a process"), rest),
                }
            }
            let found = history.violations(|_| effects.parse().unwrap());
            let as_expected = match expected {
                "" => found.is_empty(),
                part => found.iter().any(|text| text.contains(part)),
            };
            assert!(as_expected, "{row}: {found:?}");
        }
    }
}
