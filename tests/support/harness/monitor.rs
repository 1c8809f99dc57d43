//! Commands that a server received.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Reply, RespConn};

/// A command as the server received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// `127.0.0.1:<port>` of the client, or `lua` for a command of a script.
    pub client: String,
    /// The name in upper case, such as `EVALSHA`.
    pub name: String,
    /// The arguments; bytes that are not UTF-8 are replaced.
    pub args: Vec<String>,
}

impl Command {
    /// Whether a script issued it.
    pub fn is_from_script(&self) -> bool {
        self.client == "lua"
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.args.iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}

/// A `MONITOR` session: receives every command of every client, except `AUTH`.
#[derive(Debug)]
pub struct Monitor {
    watching: RespConn,
    control: RespConn,
}

impl Monitor {
    pub(crate) fn new(mut watching: RespConn, control: RespConn) -> Self {
        let reply = watching.command(&["MONITOR"]).expect("MONITOR is answered");
        assert_eq!(reply, Reply::Simple("OK".to_owned()), "MONITOR is allowed");
        Self { watching, control }
    }

    /// The commands since the last call, including those of `cli` and scripts.
    ///
    /// Includes every command that was answered before this call: the session sends a command of its
    /// own and reads until that one arrives.
    pub fn commands(&mut self) -> Vec<Command> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let barrier = format!("idem-monitor-{}-{number}", std::process::id());
        let echoed = self.control.command(&["ECHO", &barrier]);
        assert_eq!(
            echoed.expect("ECHO is answered").to_string(),
            barrier,
            "ECHO is allowed"
        );
        let mut commands = Vec::new();
        loop {
            let reply = self.watching.read().expect("the monitor stays connected");
            let line = reply.to_string();
            let command = parse(&line).unwrap_or_else(|| panic!("not a MONITOR line: {line:?}"));
            if command.name == "ECHO" && command.args.first() == Some(&barrier) {
                return commands;
            }
            // Every connection of the harness begins with `AUTH`, which older servers hide.
            if command.name != "AUTH" {
                commands.push(command);
            }
        }
    }

    /// The names of the clients' commands since the last call, without scripts'.
    pub fn names(&mut self) -> Vec<String> {
        let sent = self.commands().into_iter();
        sent.filter(|command| !command.is_from_script())
            .map(|command| command.name)
            .collect()
    }
}

/// Parses `1700000000.123456 [0 127.0.0.1:5000] "SET" "key" "v\x00"`.
fn parse(line: &str) -> Option<Command> {
    let (_, rest) = line.split_once(" [")?;
    let (source, rest) = rest.split_once("] ")?;
    let (_, client) = source.split_once(' ')?;
    let mut words = words(rest)?.into_iter();
    Some(Command {
        client: client.to_owned(),
        name: words.next()?.to_uppercase(),
        args: words.collect(),
    })
}

/// Parses `"a" "b\"c"`.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut bytes = text.bytes();
    while let Some(quote) = bytes.find(|byte| *byte != b' ') {
        if quote != b'"' {
            return None;
        }
        let mut word = Vec::new();
        loop {
            match bytes.next()? {
                b'"' => break,
                b'\\' => word.push(match bytes.next()? {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b'x' => {
                        let digits = [bytes.next()?, bytes.next()?];
                        u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                    }
                    other => other,
                }),
                byte => word.push(byte),
            }
        }
        words.push(String::from_utf8_lossy(&word).into_owned());
    }
    Some(words)
}
