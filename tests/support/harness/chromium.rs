//! Settings of a browser.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

/// A browser without windows, and without background network traffic.
const ARGS: [&str; 17] = [
    "--headless=new",
    // It refuses to run as root with its sandbox. It opens only the tests' own pages.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-breakpad",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-features=MediaRouter,OptimizationHints,Translate",
    "--metrics-recording-only",
    "--no-proxy-server",
    // Remaining requests, such as the start page of a search engine, are not resolved.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
];

/// Settings of a headless Chromium; see [`ChromeDriver::chromium`](crate::ChromeDriver::chromium).
#[derive(Debug, Clone)]
#[must_use = "a driver starts the browser when it is given the capabilities"]
pub struct Chromium {
    program: PathBuf,
    args: Vec<String>,
    javascript: bool,
    waiting: bool,
}

impl Chromium {
    pub(crate) fn new(program: PathBuf, profile: &Path) -> Self {
        let mut args: Vec<_> = ARGS.map(str::to_owned).into();
        args.push(format!("--user-data-dir={}", profile.display()));
        Self {
            program,
            args,
            javascript: true,
            waiting: true,
        }
    }

    /// Runs no script of any page.
    pub fn without_javascript(mut self) -> Self {
        self.javascript = false;
        self
    }

    /// Does not wait for pages: the next command runs while the page is still loading, as with
    /// people. A test waits for its own conditions.
    pub fn without_waiting(mut self) -> Self {
        self.waiting = false;
        self
    }

    /// Capabilities for a client of the W3C's `WebDriver`, in `alwaysMatch`.
    pub fn capabilities(&self) -> Map<String, Value> {
        let mut options = json!({
            "binary": self.program.to_string_lossy(),
            "args": self.args,
        });
        if !self.javascript {
            let blocked = 2;
            options["prefs"] =
                json!({ "profile.managed_default_content_settings.javascript": blocked });
        }
        let strategy = if self.waiting { "normal" } else { "none" };
        Map::from_iter([
            ("browserName".to_owned(), "chrome".into()),
            ("pageLoadStrategy".to_owned(), strategy.into()),
            ("goog:chromeOptions".to_owned(), options),
        ])
    }
}
