//! A `chromedriver` and its browsers.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::builder::find;
use crate::chromium::Chromium;
use crate::dir::TestDir;
use crate::port::Port;
use crate::server::{Description, Family, Ready, started};
use crate::{Server, StartError};

const DRIVER: &str = "IDEM_CHROMEDRIVER";
const BROWSER: &str = "IDEM_CHROMIUM";

/// Names of the browser on different systems.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Log message of a driver that listens.
const READY: &str = "was started successfully on port ";

/// A `chromedriver` on a loopback port, stopped with its browsers on drop.
///
/// A client of the W3C's `WebDriver` connects to its [`url`](ChromeDriver::url), with the
/// [`capabilities`](Chromium::capabilities) of a [`chromium`](ChromeDriver::chromium). A driver
/// dropped by a panicking test prints the end of its log and keeps its directory.
#[derive(Debug)]
pub struct ChromeDriver {
    server: Server,
    browser: PathBuf,
    browsers: AtomicU32,
}

impl ChromeDriver {
    /// Starts a driver, and waits until it listens. It starts no browser before a client requests one.
    pub fn start() -> Self {
        started(|| {
            let advice = || {
                format!(
                    "no Chromium with its driver; install them (Debian: `apt-get install chromium \
                     chromium-driver`, Fedora: `dnf install chromium chromedriver`, macOS: `brew \
                     install --cask chromium chromedriver`) or set {DRIVER} and {BROWSER} to the \
                     paths of them"
                )
            };
            let driver = find(DRIVER, ["chromedriver"], advice)?;
            let browser = find(BROWSER, BROWSERS, advice)?;
            Self::launch(&driver, &browser)
        })
    }

    fn launch(driver: &Path, browser: &Path) -> Result<Self, StartError> {
        // The harness chooses the port: the driver would choose a port that is free for IPv6, and fail if it is taken
        // for IPv4.
        let port = Port::take()?;
        let dir = TestDir::new("chromium")?;
        // Files of a browser outside its profile: without this they would be in the user's home
        // directory, and in the system's temporary directory after a kill.
        let home = dir.path().join("home");
        fs::create_dir(&home)?;
        let args = [
            format!("--port={}", port.number()),
            "--log-level=INFO".to_owned(),
        ];
        let args = args.map(OsString::from).into();
        let mut description = Description::new("chromedriver", driver, args, Ready::Says(READY));
        description.family = Family::Group;
        description.will = include_str!("chrome_driver_will.sh");
        description.set_up = Box::new(move |command| {
            command
                .env("HOME", &home)
                .env("TMPDIR", &home)
                .env_remove("XDG_CONFIG_HOME")
                .env_remove("XDG_CACHE_HOME")
                .env_remove("DBUS_SESSION_BUS_ADDRESS");
            Ok(())
        });
        Ok(Self {
            server: Server::start(description, port, dir)?,
            browser: browser.to_owned(),
            browsers: AtomicU32::new(0),
        })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    /// Settings of a new browser with an empty profile.
    pub fn chromium(&self) -> Chromium {
        let number = self.browsers.fetch_add(1, Ordering::Relaxed);
        let profile = self.dir().join(format!("profile-{number}"));
        Chromium::new(self.browser.clone(), &profile)
    }
}

is_a!(ChromeDriver.server: Server);
