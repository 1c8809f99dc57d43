//! A `chromedriver` and its browsers.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::builder::find_program;
use crate::child::Guarded;
use crate::chromium::Chromium;
use crate::dir::TestDir;
use crate::family;
use crate::port::Port;
use crate::{HANG_LIMIT, StartError};

const DRIVER: &str = "IDEM_CHROMEDRIVER";
const BROWSER: &str = "IDEM_CHROMIUM";

/// Names of the browser on different systems.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Log message of a driver that listens.
const READY: &str = "was started successfully on port ";

/// Lines of the log that a failed test prints.
const TAIL: usize = 40;

/// A `chromedriver` on a loopback port, stopped when the value is dropped, with all the browsers
/// that it has started.
///
/// A client of the W3C's `WebDriver` connects to its [`url`](ChromeDriver::url), with the
/// [`capabilities`](Chromium::capabilities) of a [`chromium`](ChromeDriver::chromium). A driver
/// dropped by a panicking test prints the end of its log and keeps its directory.
#[derive(Debug)]
pub struct ChromeDriver {
    // Dropped in this order: first the process, then its port and directory.
    child: Guarded,
    port: Port,
    browser: PathBuf,
    browsers: AtomicU32,
    dir: TestDir,
}

impl ChromeDriver {
    /// Starts a driver, and waits until it listens. It starts no browser before a client requests one.
    ///
    /// # Panics
    ///
    /// When it does not start; the message has the reason and the remedy.
    #[must_use]
    pub fn start() -> Self {
        match Self::try_start() {
            Ok(driver) => driver,
            Err(error) => panic!("{error}"),
        }
    }

    /// Starts a driver, and waits until it listens.
    ///
    /// # Errors
    ///
    /// When it does not start; the message has the reason and the remedy.
    pub fn try_start() -> Result<Self, StartError> {
        let driver = find(DRIVER, env::var_os(DRIVER), &["chromedriver"])?;
        let browser = find(BROWSER, env::var_os(BROWSER), &BROWSERS)?;
        // Another process may take a port between the check and the driver's start.
        for _ in 0..9 {
            match Self::launch(&driver, &browser) {
                Err(error) if error.port_taken => {}
                outcome => return outcome,
            }
        }
        Self::launch(&driver, &browser)
    }

    fn launch(driver: &Path, browser: &Path) -> Result<Self, StartError> {
        // The harness chooses the port: the driver would choose one that is free for IPv6, and fail if it is
        // taken for IPv4.
        let port = Port::take()?;
        let dir = TestDir::new("chromium")?;
        // Files of a browser outside its profile: without this they would be in the user's home
        // directory, and in the system's temporary directory after a kill.
        let home = dir.path().join("home");
        fs::create_dir(&home)?;
        let log = File::create(log_path(&dir))?;
        let errors = log.try_clone()?;
        let args = [
            format!("--port={}", port.number()),
            "--log-level=INFO".to_owned(),
        ];
        let args = args.map(OsString::from);
        let will = include_str!("chrome_driver_will.sh");
        let child = Guarded::spawn_with_will(driver, &args, dir.disposable(), will, |command| {
            command
                .env("HOME", &home)
                .env("TMPDIR", &home)
                .env_remove("XDG_CONFIG_HOME")
                .env_remove("XDG_CACHE_HOME")
                .env_remove("DBUS_SESSION_BUS_ADDRESS")
                .stdout(log)
                .stderr(errors)
        })?;
        let mut driver = Self {
            child,
            port,
            browser: browser.to_owned(),
            browsers: AtomicU32::new(0),
            dir,
        };
        driver.wait_until_ready()?;
        Ok(driver)
    }

    /// URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port.number())
    }

    /// Settings of a new browser with an empty profile.
    pub fn chromium(&self) -> Chromium {
        let number = self.browsers.fetch_add(1, Ordering::Relaxed);
        let profile = self.dir.path().join(format!("profile-{number}"));
        Chromium::new(self.browser.clone(), profile)
    }

    /// Log of the driver and its browsers.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(log_path(&self.dir)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Directory of all files of the driver and its browsers.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn wait_until_ready(&mut self) -> Result<(), StartError> {
        let deadline = Instant::now() + HANG_LIMIT;
        loop {
            if self.log().contains(READY) {
                return Ok(());
            }
            let what = match self.child.try_wait()? {
                Some(status) => format!("ended with {status}"),
                None if Instant::now() > deadline => {
                    format!("does not listen within {HANG_LIMIT:?}")
                }
                None => {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                }
            };
            let tail = self.tail();
            let mut error = StartError::new(format!("chromedriver {what}; its log ends:\n{tail}"));
            error.port_taken = tail.contains("Address already in use");
            return Err(error);
        }
    }

    fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }
}

impl Drop for ChromeDriver {
    fn drop(&mut self) {
        // The browsers are in the driver's group. The driver has not been waited for, so its group id is still valid.
        let killed = family::kill_group(self.child.pid());
        self.child.kill();
        // Crash reporters are not in the group, and end once the processes they report on have ended.
        let ended = killed.and_then(|()| family::wait_for_those_of(self.dir.path()));
        if let Err(error) = ended {
            eprintln!("the browsers of chromedriver: {error}");
        }
        if thread::panicking() {
            eprintln!("the log of chromedriver at {} ends:", self.url());
            eprintln!("{}", self.tail());
        }
    }
}

fn log_path(dir: &TestDir) -> PathBuf {
    dir.path().join("chromedriver.log")
}

/// The named program, or the first existing one of the usual names.
fn find(variable: &str, named: Option<OsString>, usual: &[&str]) -> Result<PathBuf, StartError> {
    if let Some(path) = named {
        return find_program(Path::new(&path)).ok_or_else(|| {
            StartError::new(format!(
                "{variable} is no program: `{}`",
                path.to_string_lossy()
            ))
        });
    }
    let mut programs = usual.iter().map(Path::new);
    programs.find_map(find_program).ok_or_else(|| {
        StartError::new(format!(
            "no program `{}`; install Chromium and its driver (Debian: `apt-get install chromium \
             chromium-driver`, Fedora: `dnf install chromium chromedriver`, macOS: `brew install \
             --cask chromium chromedriver`) or set {variable} to the path of one",
            usual[0]
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_the_package_and_a_named_one_must_exist() {
        let error = find(BROWSER, None, &["no-such-browser"]).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("apt-get install chromium"), "{message}");
        assert!(message.contains(BROWSER), "{message}");

        let error = find(DRIVER, Some("/nowhere/driver".into()), &["sh"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "IDEM_CHROMEDRIVER is no program: `/nowhere/driver`"
        );
        let found = find(DRIVER, None, &["no-such-driver", "sh"]).unwrap();
        assert!(found.ends_with("sh"));
    }
}
