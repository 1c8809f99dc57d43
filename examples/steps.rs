//! An order in a process that is killed after each of its lines, and continues in the next one.
//!
//! `cargo run --example steps` prints:
//!
//! ```text
//! order-7
//!     killed: the call had begun
//!     killed: the bank had charged, unrecorded
//!     killed: the charge was recorded
//!     killed: the stock was taken, unrecorded
//!     killed: the stock was recorded
//!     killed: the label was printed, unrecorded
//!     killed: the label was recorded
//!     killed: the mail was recorded
//!     placed: label 1
//! order-8
//!     killed: the mail was sent, unrecorded
//!     refused: the outcome is unknown, and no second mail is sent
//!
//!                  asked  done
//! bank charges         3     2
//! stock taken          3     2
//! labels printed       2     2
//! mails sent           2     2
//! ```
//!
//! Bank and stock recognise the key of their step, so that a repeat has no second effect. The label printer recognises
//! nothing: the next attempt looks for the label before it prints (`reconcile`). A mail cannot be looked for (`once`).

#![allow(clippy::print_stdout, reason = "the program shows its answers")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::{env, fs, process};

use idem_runtime::store::sql::SqliteStore;
use idem_runtime::{Classify, Engine, ErrorKind, Reconciled, idempotent, step};
use serde::{Deserialize, Serialize};
use tokio::time::Duration;

#[derive(Debug, Serialize, Deserialize, Classify)]
enum OrderError {
    #[class(delegate)]
    Idempotency(idem_runtime::Error),
}

impl From<idem_runtime::Error> for OrderError {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idempotency(error)
    }
}

#[idempotent(op = "orders.place", key = order_no, lease = "300ms", max_attempts = 20)]
async fn place(order_no: &str) -> Result<usize, OrderError> {
    dies("the call had begun");
    let charge = step("charge", async |s| {
        let charge = World::open().ask("bank", &s.key());
        dies("the bank had charged, unrecorded");
        Ok::<_, OrderError>(charge)
    });
    charge.await?;
    dies("the charge was recorded");
    let stock = step("stock", async |s| {
        let taken = World::open().ask("stock", &s.key());
        dies("the stock was taken, unrecorded");
        Ok::<_, OrderError>(taken)
    });
    stock.await?;
    dies("the stock was recorded");
    let label = step("label", async |_| {
        let label = World::open().print(order_no);
        dies("the label was printed, unrecorded");
        Ok::<_, OrderError>(label)
    });
    let label = label
        .reconcile(async |_| World::open().find(order_no))
        .await?;
    dies("the label was recorded");
    let mail = step("mail", async |_| {
        World::open().ask("mail", &format!("{order_no} to a customer"));
        dies("the mail was sent, unrecorded");
        Ok::<_, OrderError>(())
    });
    mail.once().await?;
    dies("the mail was recorded");
    Ok(label)
}

/// Kills this process if it is to die here.
fn dies(line: &str) {
    if env::var("DIES").as_deref() == Ok(line) {
        process::abort(); // no destructor, no release
    }
}

/// The other systems: a file, with a line for each request.
struct World(PathBuf);

impl World {
    fn open() -> Self {
        Self(directory().join("world"))
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// A request under a key: a known one changes nothing.
    fn ask(&self, system: &str, key: &str) -> bool {
        let line = format!("{system} {key}");
        let is_new = !self.lines().contains(&line);
        self.write(&line);
        is_new
    }

    /// Prints, whatever was printed before.
    fn print(&self, order_no: &str) -> usize {
        let labels = self
            .lines()
            .iter()
            .filter(|line| line.starts_with("label "))
            .count();
        self.write(&format!("label {} {order_no}", labels + 1));
        labels + 1
    }

    fn find(&self, order_no: &str) -> Reconciled<usize> {
        for line in self.lines() {
            let mut words = line.split(' ');
            let parts = (words.next(), words.next(), words.next());
            if let (Some("label"), Some(label), Some(of)) = parts
                && of == order_no
                && let Ok(label) = label.parse()
            {
                return Reconciled::Landed(label);
            }
        }
        Reconciled::NotLanded
    }

    fn write(&self, line: &str) {
        let file = OpenOptions::new().append(true).create(true).open(&self.0);
        let written = file.and_then(|mut file| writeln!(file, "{line}"));
        written.expect("the directory of the example can be written to");
    }
}

/// The directory of this run, which a child gets from its parent.
fn directory() -> PathBuf {
    match env::var_os("STEPS_DIR") {
        Some(directory) => directory.into(),
        None => env::temp_dir().join(format!("idem-steps-{}", process::id())),
    }
}

fn main() -> ExitCode {
    if let Ok(order_no) = env::var("ORDER") {
        return child(&order_no);
    }
    let directory = directory();
    fs::create_dir_all(&directory).expect("the directory for temporary files can be written to");
    let run = |order_no, dies| {
        let mut child = Command::new(env::current_exe().expect("this program has a path"));
        child
            .env("ORDER", order_no)
            .env("DIES", dies)
            .env("STEPS_DIR", &directory);
        let output = child.output().expect("this program starts");
        if output.status.code().is_none() {
            println!("    killed: {dies}");
        }
        print!("{}", String::from_utf8_lossy(&output.stdout));
    };
    println!("order-7");
    for line in [
        "the call had begun",
        "the bank had charged, unrecorded",
        "the charge was recorded",
        "the stock was taken, unrecorded",
        "the stock was recorded",
        "the label was printed, unrecorded",
        "the label was recorded",
        "the mail was recorded",
        "",
    ] {
        run("order-7", line);
    }
    println!("order-8");
    run("order-8", "the mail was sent, unrecorded");
    run("order-8", "");

    println!("\n{:<16}{:>6}{:>6}", "", "asked", "done");
    let mut balanced = true;
    for (what, system) in [
        ("bank charges", "bank"),
        ("stock taken", "stock"),
        ("labels printed", "label"),
        ("mails sent", "mail"),
    ] {
        let mut lines = World(directory.join("world")).lines();
        lines.retain(|line| line.starts_with(system));
        let asked = lines.len();
        lines.sort_unstable();
        lines.dedup();
        println!("{what:<16}{asked:>6}{:>6}", lines.len());
        balanced &= lines.len() == 2;
    }
    let _ = fs::remove_dir_all(directory);
    if balanced {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// One process of the shop.
#[tokio::main(flavor = "current_thread")]
async fn child(order_no: &str) -> ExitCode {
    let file = directory().join("idem.db");
    let store = SqliteStore::connect(&format!("sqlite://{}?mode=rwc", file.display())).await;
    let store = store.expect("the file can be opened");
    store.migrate().await.expect("the table can be created");
    let engine = Engine::builder(store)
        .build()
        .expect("the settings are within bounds");
    engine.install().expect("it is the only engine");
    // The lease of a killed attempt has to end.
    tokio::time::sleep(Duration::from_millis(320)).await;
    match place(order_no).await {
        Ok(label) => println!("    placed: label {label}"),
        Err(OrderError::Idempotency(error)) => match error.kind() {
            ErrorKind::Unknown { .. } => {
                println!("    refused: the outcome is unknown, and no second mail is sent");
            }
            _ => println!("    refused: {error}"),
        },
    }
    ExitCode::SUCCESS
}
