//! A browser with one session.

use std::ops::Deref;
use std::time::Duration;

use idem_harness::{ChromeDriver, Chromium, HANG_LIMIT};
use thirtyfour::{By, Capabilities, WebDriver};

/// Between two reads of a page.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// An empty headless Chromium, killed when the value is dropped. Several of them share neither cookies nor anything
/// else.
pub(crate) struct Browser {
    session: WebDriver,
    _driver: ChromeDriver,
}

impl Browser {
    pub(crate) async fn start() -> Self {
        Self::start_with(|chromium| chromium).await
    }

    /// Starts a browser that runs no script of any page.
    pub(crate) async fn without_javascript() -> Self {
        Self::start_with(Chromium::without_javascript).await
    }

    pub(crate) async fn start_with(set: impl FnOnce(Chromium) -> Chromium) -> Self {
        let driver = ChromeDriver::start();
        let chromium = set(driver.chromium());
        let capabilities = Capabilities::from(chromium.capabilities());
        let session = WebDriver::new(driver.url(), capabilities).await;
        Self {
            session: session.unwrap(),
            _driver: driver,
        }
    }

    /// The text of the first element of this CSS selector, if any.
    pub(crate) async fn text(&self, css: &str) -> Option<String> {
        // It may go meanwhile, when the page is about to become another one.
        let element = self.session.find(By::Css(css)).await.ok()?;
        element.text().await.ok()
    }

    /// Clicks twice on the first element that this CSS selector finds. Any other command waits for the page that the first
    /// click leads to.
    ///
    /// Of two clicks within some milliseconds that send a form, Chromium gives up the first before anything is sent. Longer
    /// apart, both are sent, unless the answer is there before.
    pub(crate) async fn click_twice(&self, css: &str, apart: Duration) {
        let element = self.session.find(By::Css(css)).await.unwrap();
        let twice = self
            .session
            .action_chain_with_delay(None, Some(apart))
            .move_to_element_center(&element)
            .click()
            // It takes that long.
            .move_by_offset(0, 0)
            .click();
        twice.perform().await.unwrap();
    }

    /// Waits until the first element of this CSS selector has such text.
    pub(crate) async fn wait_for(&self, css: &str, is_right: impl Fn(&str) -> bool) {
        let wait = async {
            while !self.text(css).await.is_some_and(|text| is_right(&text)) {
                tokio::time::sleep(PAUSE).await;
            }
        };
        let found = tokio::time::timeout(HANG_LIMIT, wait).await.is_ok();
        assert!(found, "`{css}` is {:?}", self.text(css).await);
    }

    /// Waits until the first element of this CSS selector has this text.
    pub(crate) async fn wait_for_text(&self, css: &str, text: &str) {
        self.wait_for(css, |found| found == text).await;
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
        // The session would block this thread to tell a browser to quit that is killed anyway. It cannot have been ended
        // before: that takes it by value.
        drop(self.session.clone().leak());
    }
}
