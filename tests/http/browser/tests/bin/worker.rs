//! A process with a browser, to be killed.

use std::io::{self, Write};
use std::thread;

use idem_tests_browser::Browser;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let browser = runtime.block_on(Browser::start());
    let dir = browser.driver().dir().display();
    writeln!(io::stdout(), "dir {dir}").expect("stdout is read");
    loop {
        thread::park();
    }
}
