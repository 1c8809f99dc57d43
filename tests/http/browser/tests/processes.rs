//! A browser leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::{self, Command};

use idem_harness::{ChromeDriver, Worker, eventually as until};
use idem_tests_browser::Browser;

#[derive(Debug)]
struct Process {
    pid: String,
    parent: String,
    args: String,
}

/// All processes that have not ended.
fn processes() -> Vec<Process> {
    let ps = Command::new("ps")
        .args(["-A", "-ww", "-o", "pid=,ppid=,state=,args="])
        .output();
    let text = String::from_utf8(ps.expect("ps is installed").stdout).expect("text");
    let process = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (pid, parent, state) = (words.next()?, words.next()?, words.next()?);
        let args = words.collect::<Vec<_>>().join(" ");
        (!state.starts_with('Z')).then_some(Process { pid, parent, args })
    };
    text.lines().filter_map(process).collect()
}

/// The processes with this directory in their arguments, and their parents and children.
fn family(dir: &Path) -> Vec<Process> {
    let all = processes();
    let dir = dir.to_string_lossy();
    let named: Vec<_> = all
        .iter()
        .filter(|process| process.args.contains(&*dir))
        .collect();
    let close: Vec<_> = all
        .iter()
        .map(|one| {
            let kin = |other: &&Process| one.pid == other.parent || one.parent == other.pid;
            // Those whose parent has gone have that of all.
            one.args.contains(&*dir) || (one.pid != "1" && named.iter().any(kin))
        })
        .collect();
    let mut close = close.into_iter();
    let mut all = all;
    all.retain(|process| {
        close.next().unwrap_or_default() && process.pid != process::id().to_string()
    });
    all
}

fn alive(before: &[Process]) -> Vec<Process> {
    let mut now = processes();
    now.retain(|process| before.iter().any(|other| other.pid == process.pid));
    now
}

#[tokio::test]
async fn a_dropped_browser_leaves_no_process_and_no_file() {
    let browser = Browser::start().await;
    browser
        .goto("data:text/html,<p id=hello>hello")
        .await
        .unwrap();
    assert_eq!(browser.text("#hello").await.as_deref(), Some("hello"));
    let dir = browser.driver().dir().to_owned();
    let before = family(&dir);
    let there = |what: &str| before.iter().any(|process| process.args.contains(what));
    for what in ["chromedriver", "--type=renderer", "crashpad_handler"] {
        assert!(there(what), "{what} is not in {before:#?}");
    }

    drop(browser);
    let left = alive(&before);
    assert!(left.is_empty() && family(&dir).is_empty(), "{left:#?}");
    assert!(!dir.exists());
}

#[test]
fn a_browser_dies_with_the_process_that_started_it() {
    let mut worker = Worker::program(env!("CARGO_BIN_EXE_browser-worker")).spawn();
    let dir = PathBuf::from(worker.line_after("dir"));
    let before = family(&dir);
    let there = |what: &str| before.iter().any(|process| process.args.contains(what));
    for what in ["chromedriver", "--type=renderer", "crashpad_handler"] {
        assert!(there(what), "{what} is not in {before:#?}");
    }
    worker.kill9();
    until("the browser is gone", || alive(&before).is_empty());
    until("its directory is gone", || !dir.exists());
}

#[test]
fn a_driver_without_a_browser_goes_as_well() {
    let driver = ChromeDriver::start();
    let (dir, url) = (driver.dir().to_owned(), driver.url());
    assert!(
        driver.log().contains("started successfully"),
        "{}",
        driver.log()
    );
    let addr = url.strip_prefix("http://").unwrap().to_owned();
    assert!(std::net::TcpStream::connect(&addr).is_ok());
    drop(driver);
    assert!(std::net::TcpStream::connect(&addr).is_err());
    assert!(!dir.exists());
}
