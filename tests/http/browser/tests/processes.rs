//! A browser leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::{self, Command};

use idem_harness::{Worker, eventually as until};
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
        .map(|process| (process.pid.clone(), process.parent.clone()))
        .collect();
    let own = process::id().to_string();
    let is_close = |one: &Process| {
        let kin = |(pid, parent): &(String, String)| one.pid == *parent || one.parent == *pid;
        // Those whose parent has gone have that of all.
        one.args.contains(&*dir) || (one.pid != "1" && named.iter().any(kin))
    };
    let close = all
        .into_iter()
        .filter(|one| one.pid != own && is_close(one));
    close.collect()
}

/// Those of a browser that has a page.
fn whole_family(dir: &Path) -> Vec<Process> {
    let family = family(dir);
    let there = |what: &str| family.iter().any(|process| process.args.contains(what));
    for what in ["chromedriver", "--type=renderer", "crashpad_handler"] {
        assert!(there(what), "{what} is not in {family:#?}");
    }
    family
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
    let before = whole_family(&dir);

    drop(browser);
    let left = alive(&before);
    assert!(left.is_empty() && family(&dir).is_empty(), "{left:#?}");
    assert!(!dir.exists());
}

#[test]
fn a_browser_dies_with_the_process_that_started_it() {
    let mut worker = Worker::program(env!("CARGO_BIN_EXE_browser-worker")).spawn();
    let dir = PathBuf::from(worker.line_after("dir"));
    let before = whole_family(&dir);
    worker.kill9();
    until("the browser is gone", || alive(&before).is_empty());
    until("its directory is gone", || !dir.exists());
}
