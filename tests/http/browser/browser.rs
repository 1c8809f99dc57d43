//! A browser with one session.

use std::ops::Deref;
use std::time::{Duration, Instant};

use idem_harness::{ChromeDriver, Chromium, HANG_LIMIT};
use thirtyfour::{By, Capabilities, WebDriver};

/// Between two reads of a page.
const PAUSE: Duration = Duration::from_millis(10);

/// A headless Chromium with nothing in it, killed when the value is dropped.
///
/// It is a [`WebDriver`]: `goto`, `find`, `refresh`, `back`, `new_tab`. Several of them share
/// neither cookies nor anything else.
#[derive(Debug)]
pub struct Browser {
    session: WebDriver,
    _driver: ChromeDriver,
}

impl Browser {
    /// Starts a browser, and waits until it is there.
    pub async fn start() -> Self {
        Self::start_with(|chromium| chromium).await
    }

    /// Starts one that runs no script of any page.
    pub async fn without_javascript() -> Self {
        Self::start_with(Chromium::without_javascript).await
    }

    /// Starts one with settings of one's own.
    pub async fn start_with(set: impl FnOnce(Chromium) -> Chromium) -> Self {
        let driver = ChromeDriver::start();
        let chromium = set(driver.chromium());
        let capabilities = Capabilities::from(chromium.capabilities());
        match WebDriver::new(driver.url(), capabilities).await {
            Ok(session) => Self {
                session,
                _driver: driver,
            },
            Err(error) => panic!("no browser: {error}"),
        }
    }

    /// The text of the first element that this CSS selector finds, or `None` when there is none.
    pub async fn text(&self, css: &str) -> Option<String> {
        // It may go while we look, when the page is about to become another one.
        let element = self.session.find(By::Css(css)).await.ok()?;
        element.text().await.ok()
    }

    /// Clicks twice on the first element that this CSS selector finds. Any other command waits for
    /// the page that the first click leads to.
    ///
    /// Of two clicks within some milliseconds that send a form, Chromium gives up the first before
    /// anything is sent. Longer apart, both are sent, unless the answer is there before.
    ///
    /// # Panics
    ///
    /// When there is no such element, or the page that follows does not come.
    pub async fn click_twice(&self, css: &str, apart: Duration) {
        let element = self.session.find(By::Css(css)).await;
        let element = element.unwrap_or_else(|error| panic!("no `{css}` to click: {error}"));
        let twice = self
            .session
            .action_chain_with_delay(None, Some(apart))
            .move_to_element_center(&element)
            .click()
            // It takes that long.
            .move_by_offset(0, 0)
            .click();
        if let Err(error) = twice.perform().await {
            panic!("no double click on `{css}`: {error}");
        }
    }

    /// Waits until the first element that this CSS selector finds has this text.
    ///
    /// # Panics
    ///
    /// When it has not within the [limit](HANG_LIMIT).
    pub async fn wait_for_text(&self, css: &str, text: &str) {
        let deadline = Instant::now() + HANG_LIMIT;
        loop {
            let found = self.text(css).await;
            if found.as_deref() == Some(text) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "`{css}` is not `{text}` within {HANG_LIMIT:?}; at last: {found:?}"
            );
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Deref for Browser {
    type Target = WebDriver;

    fn deref(&self) -> &WebDriver {
        &self.session
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The session would block this thread to tell a browser to quit that is killed anyway. It
        // cannot have been ended before: that takes it by value.
        drop(self.session.clone().leak());
    }
}
