//! The journal: what each process did, outside the store under test.
//!
//! One file a process, one write(2) a line, so that `kill -9` loses nothing that was written: it is in the
//! page cache. Times are microseconds of `CLOCK_MONOTONIC`. A line is
//!
//! ```text
//! <time> call <id> <key> <payload>              a call begins
//! <time> start <id> <key> <attempt> <digest>    its body starts
//! <time> fence <id> <key> <fence>               the fencing number of the body
//! <time> end <id> <key> <how> [<answer>]        the body ends: ok, declined, down, unknown, panic, dropped
//! <time> told <id> <key> <what> [<answer>]      the caller gets: as above, gone, or the kind of an error
//! <time> hook <id> <key> landed|not|unknown     the reconcile hook has found out
//! <time> reset <id> <key> begin|done|failed     an operator resets the key
//! <time> resolve <id> <key> begin|done|failed <answer>
//! <time> recorded 0 <key> <fence>:<end> …       what the record remembers of its attempts
//! <time> event 0 <digest> <words>               what the engine told its observer
//! <time> stopped 0 - <words>                    the process ends in order
//! ```

use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use crate::clock::now;

#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    /// Appends to this file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self(file))
    }

    /// Writes a line with the time of now, which it returns.
    pub(crate) fn write(&self, words: Arguments<'_>) -> u64 {
        let time = now();
        let line = format!("{time} {words}\n");
        (&self.0)
            .write_all(line.as_bytes())
            .expect("the disk has room for the journal");
        time
    }
}

/// A line of a journal, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) time: u64,
    pub(crate) word: &'a str,
    pub(crate) call: u32,
    pub(crate) key: &'a str,
    /// What follows.
    pub(crate) rest: &'a str,
}

impl<'a> Entry<'a> {
    /// `None` for a line that a killed process did not finish.
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(5, ' ');
        Some(Self {
            time: words.next()?.parse().ok()?,
            word: words.next()?,
            call: words.next()?.parse().ok()?,
            key: words.next()?,
            rest: words.next().unwrap_or_default(),
        })
    }

    /// The word after the first one of the rest.
    pub(crate) fn second(&self) -> &'a str {
        self.rest.split_once(' ').map_or("", |(_, second)| second)
    }

    /// The first word of the rest.
    pub(crate) fn first(&self) -> &'a str {
        self.rest.split(' ').next().unwrap_or_default()
    }
}

/// Reads a journal, line by line. What a killed process left of its last line is skipped.
pub(crate) fn read(path: &Path, mut each: impl FnMut(&str)) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if let Some(whole) = line.strip_suffix('\n') {
            each(whole);
        }
        line.clear();
    }
    Ok(())
}
