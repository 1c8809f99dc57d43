//! Progress of a run: a bar on a terminal, a line every tenth elsewhere.

use std::io::IsTerminal as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress on standard error.
#[derive(Debug)]
pub struct Progress {
    shown: Shown,
    done: AtomicUsize,
    total: usize,
}

#[derive(Debug)]
enum Shown {
    Bar(ProgressBar),
    Lines,
    Nothing,
}

impl Progress {
    /// A bar, or lines where standard error is no terminal.
    ///
    /// # Panics
    ///
    /// Never: the template is a constant.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let shown = if std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template(
                "{bar:40.cyan/blue} {pos:>5}/{len} deliveries  {elapsed}",
            )
            .expect("the template is well-formed")
            .progress_chars("=> ");
            let bar = ProgressBar::new(total as u64).with_style(style);
            bar.enable_steady_tick(Duration::from_millis(100));
            Shown::Bar(bar)
        } else {
            Shown::Lines
        };
        Self {
            shown,
            done: AtomicUsize::new(0),
            total,
        }
    }

    /// Shows nothing.
    #[must_use]
    pub fn hidden() -> Self {
        Self {
            shown: Shown::Nothing,
            done: AtomicUsize::new(0),
            total: 0,
        }
    }

    pub(crate) fn step(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        match &self.shown {
            Shown::Bar(bar) => bar.inc(1),
            Shown::Lines => {
                let tenth = |done: usize| done * 10 / self.total;
                if tenth(done) > tenth(done - 1) {
                    eprintln!("{:>3} %  {done} deliveries", tenth(done) * 10);
                }
            }
            Shown::Nothing => {}
        }
    }

    pub(crate) fn finish(&self) {
        if let Shown::Bar(bar) = &self.shown {
            bar.finish();
        }
    }
}
