//! What one run of one case took.

use std::time::Duration;

/// One run. Latencies are in nanoseconds, in order.
#[derive(Debug)]
pub(crate) struct Sample {
    wall: Duration,
    latencies: Vec<u32>,
}

impl Sample {
    pub(crate) fn new(wall: Duration, mut latencies: Vec<u32>) -> Self {
        latencies.sort_unstable();
        Self { wall, latencies }
    }

    pub(crate) fn calls(&self) -> usize {
        self.latencies.len()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.calls() as f64 / self.wall.as_secs_f64()
    }

    /// In microseconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let last = self.latencies.len() - 1;
        f64::from(self.latencies[last * percent / 100]) / 1e3
    }
}

/// Without digits that mean nothing.
fn round(figure: f64) -> f64 {
    (figure * 1e3).round() / 1e3
}

/// The one in the middle; not a number where there is none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    round(match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    })
}

/// Where the middle 90 % begin and end; not numbers where there is none.
pub(crate) fn spread(values: impl IntoIterator<Item = f64>) -> [f64; 2] {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else {
        return [f64::NAN; 2];
    };
    let cut = values.len() / 20;
    [values[cut], values[last - cut]].map(round)
}
