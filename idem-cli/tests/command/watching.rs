//! `idem watch` on a terminal, and on a store that gives no reply for a while.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use idem_harness::{RedisServer, TcpProxy, TestDir};
use idem_runtime::store::redis::RedisStore;
use idem_runtime::store::sql::SqliteStore;
use nix::pty::{Winsize, openpty};
use serde_json::Value;

use crate::filled::{PREFIX, PayError, Site, receipt};

/// Longer than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command that ends with the test.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn watch(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_idem"));
    command.args(["--store", url, "--prefix", PREFIX]);
    command.args(["watch", "--interval", "100ms"]);
    command
}

/// The first frame with this part that a terminal of this size is sent after another, without its control sequences.
fn frame(url: &str, (rows, columns): (u16, u16), part: &str) -> String {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(Some(&size), None).unwrap();
    let (input, output) = (terminal.slave.try_clone().unwrap(), terminal.slave);
    let _watching = Watching(watch(url).stdin(input).stdout(output).spawn().unwrap());
    let mut sent = Vec::new();
    let mut master = File::from(terminal.master);
    loop {
        let mut some = [0; 4096];
        let read = master.read(&mut some).unwrap();
        sent.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&sent);
        let mut frames: Vec<_> = text.split("idem watch").collect();
        // The last one may be sent in part.
        frames.pop();
        if let Some(frame) = (frames.iter().skip(2)).find(|frame| frame.contains(part)) {
            return plain(frame);
        }
    }
}

/// A text without control sequences.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = ("idem watch".to_owned(), text.chars());
    while let Some(next) = rest.next() {
        match next {
            '\x1b' => drop(rest.by_ref().find(char::is_ascii_alphabetic)),
            '\r' => {}
            next => plain.push(next),
        }
    }
    plain.trim_end().to_owned()
}

/// Records of operations with long names, more of them than a small terminal has rows.
async fn long_names(dir: &TestDir) -> Site {
    let url = format!("sqlite://{}", dir.path().join("records.db").display());
    let store = SqliteStore::connect(&url).await.unwrap();
    store.migrate().await.unwrap();
    let site = Site::new(url, Arc::new(store));
    for number in 10..40 {
        let operation =
            format!("com.example.payments.settlement.v2.charge_a_card_of_region_{number}");
        for (key, answer) in [
            ("o-1", Ok(receipt("r-1"))),
            ("o-2", Err(PayError::NoReply)),
            ("o-3", Err(PayError::Down)),
        ] {
            let call = site.engine.operation(operation.clone()).key(key);
            let _ = call.run(|_| async { answer }).await;
        }
    }
    site
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_fits_the_terminal() {
    let dir = TestDir::new("terminal").unwrap();
    let site = long_names(&dir).await;
    for (rows, columns) in [(24_u16, 80_u16), (50, 200), (20, 60)] {
        // Of a complete sweep.
        let text = frame(&site.url, (rows, columns), "covers all ");
        // The cursor is below the last line.
        assert!(text.lines().count() < usize::from(rows), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(columns), "{line}");
        }
        // The large one has room for each operation.
        assert_eq!(text.contains("more)"), rows < 50, "{text}");
        for part in [
            "all 90 records",
            "total",
            "UNKNOWN",
            "oldest unfinished",
            "region_",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

/// A frame says how long the store has given no reply, and the counts are renewed when it replies again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_go_on_while_the_store_gives_no_reply() {
    let server = RedisServer::start();
    let store = RedisStore::connect(server.url()).await.unwrap();
    let site = Site::new(server.url(), Arc::new(store));
    site.pay("o-1", Ok(receipt("r-1"))).await.unwrap();
    let proxy = TcpProxy::start(server.addr());
    let mut command = watch(&proxy.url());
    command.args(["--json", "--timeout", "20s"]);
    let mut watching = Watching(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stdout.take().unwrap()).lines();
    let mut frame_with = |what: &str, is: fn(&Value) -> bool| {
        let began = Instant::now();
        loop {
            let frame: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if is(&frame) {
                return frame;
            }
            assert!(began.elapsed() < PATIENCE, "no frame {what}: {frame}");
        }
    };
    frame_with("of a sweep", |frame| frame["sweep"].as_u64() > Some(1));
    proxy.black_hole(true);
    let old = frame_with("of a wait", |frame| {
        frame["waiting_ms"].as_u64() >= Some(1_000)
    });
    assert_eq!(
        (&old["records"], &old["complete"]),
        (&1.into(), &true.into()),
        "{old}"
    );
    let sweep = old["sweep"].as_u64();
    // It ends the connection, so that what was sent into the hole is sent again.
    proxy.black_hole(false);
    proxy.cut();
    site.pay("o-2", Ok(receipt("r-2"))).await.unwrap();
    let renewed = frame_with("of a reply", |frame| frame["records"] == 2);
    assert!(renewed["sweep"].as_u64() > sweep, "{renewed}");
    assert_eq!(renewed["waiting_ms"], Value::Null, "{renewed}");
}

/// The error in a frame speaks of the store, and of no claim: the command has made none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_without_the_store_has_the_words_of_the_command() {
    let server = RedisServer::start();
    let mut command = watch(&server.url());
    command.args(["--json", "--timeout", "1s"]);
    let mut watching = Watching(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watching.0.stdout.take().unwrap()).lines();
    let began = Instant::now();
    let mut is_down = false;
    let error = loop {
        let frame: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if let Some(error) = frame["error"].as_str() {
            break error.to_owned();
        }
        if !is_down && frame["sweep"].as_u64() > Some(0) {
            server.kill();
            is_down = true;
        }
        assert!(began.elapsed() < PATIENCE, "no error: {frame}");
    };
    assert!(error.contains("the store cannot be reached"), "{error}");
    assert!(!error.contains("claim"), "{error}");
}

/// However small the terminal, a frame has fewer lines, and the cursor is below them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frame_fits_a_very_small_terminal() {
    let dir = TestDir::new("terminal").unwrap();
    let site = long_names(&dir).await;
    for (rows, columns) in [(2_u16, 40_u16), (6, 40), (9, 12)] {
        let text = frame(&site.url, (rows, columns), "");
        assert!(text.lines().count() < usize::from(rows), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(columns), "{line}");
        }
    }
}
