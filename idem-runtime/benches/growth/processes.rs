//! The more processes there are at one server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use super::child::{CONCURRENCY, Task, VALUE_BYTES};
use super::line::Line;
use super::load::driver::{self, Work as _};
use super::load::order::merchant;
use super::load::sample::median;
use super::load::shop::{Customer, Replay, Shop};
use super::options::Growth;
use super::server::Measured;

pub(crate) fn run(growth: &Growth, server: &mut Measured) {
    let counts: &[usize] = growth.pick(&[1, 2, 4, 8], &[1, 2]);
    let stored = merchant();
    for &processes in counts {
        let mut found = [const { (Vec::new(), Vec::new()) }; 2];
        for _ in 0..growth.load.rounds {
            server.flush();
            store(server, stored);
            for (case, (rates, shares)) in ["first", "replay"].into_iter().zip(&mut found) {
                let task = |number: u64| Task {
                    case: case.to_owned(),
                    url: server.url.clone(),
                    // All are answered from the same records, but no two make the same.
                    merchant: match case {
                        "first" => stored + 1 + number,
                        _ => stored,
                    },
                    millis: growth.pick(1_000, 200),
                };
                let mut children: Vec<_> = (0..processes as u64)
                    .map(|number| Started::new(&task(number)))
                    .collect();
                let (rate, share) = together(&mut children, server);
                rates.push(rate);
                shares.push(share);
            }
        }
        for (case, (rates, shares)) in ["first", "replay"].into_iter().zip(found) {
            Line::new(growth, "processes")
                .word("case", case)
                .count("processes", processes as u64)
                .count("concurrency_each", CONCURRENCY)
                .figure("ops_per_s", Some(median(rates)), 0)
                .figure("server_cores", Some(median(shares)), 3)
                .print();
        }
    }
}

/// Calls per second of all together, and how much of one core the server used meanwhile.
fn together(children: &mut [Started], server: &mut Measured) -> (f64, f64) {
    for child in &mut *children {
        assert_eq!(child.line(), "ready");
    }
    let (before, began) = (server.cpu_micros(), Instant::now());
    for child in &mut *children {
        child.go();
    }
    let rate = children
        .iter_mut()
        .map(|child| child.line().parse::<f64>().unwrap());
    let rate = rate.sum();
    let used = server.cpu_micros() - before;
    (rate, used / began.elapsed().as_secs_f64() / 1e6)
}

/// What replays are answered from.
fn store(server: &Measured, merchant: u64) {
    let runtime = driver::current_thread();
    let shop = Shop::new(server.engine(&runtime), VALUE_BYTES);
    let mut replay = Replay(Customer::of(&shop, merchant));
    runtime.block_on(async {
        for number in 0..driver::STORED {
            replay.fill(number).await;
        }
    });
}

/// A process, ended with this value.
struct Started {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Started {
    fn new(task: &Task) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(task.words());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            input,
            output,
        }
    }

    fn go(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    /// What it says next.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has ended, or it is of no use.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
