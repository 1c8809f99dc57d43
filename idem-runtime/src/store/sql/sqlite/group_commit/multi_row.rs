//! Statements that do for several calls what another statement does for one.

use std::sync::Arc;

use crate::store::sql::parameters::positional;

/// The text before, the text for each call, and the text after.
///
/// Arguments are those of the statement for one call; the
/// one after the last is the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MultiRowTemplate {
    pub(crate) before: &'static str,
    pub(crate) each: &'static str,
    pub(crate) after: &'static str,
    /// Whether all of them must have their effect. If not, the effect of each can be read afterwards.
    pub(crate) is_strict: bool,
}

/// Such a statement for a table.
#[derive(Debug)]
pub(crate) struct MultiRowStatement {
    before: String,
    each: String,
    after: String,
    pub(crate) order: Vec<usize>,
    pub(crate) is_strict: bool,
}

impl MultiRowStatement {
    /// `fill` inserts the table and the clock.
    pub(crate) fn new(template: MultiRowTemplate, fill: impl Fn(&str) -> String) -> Arc<Self> {
        let (each, order) = positional(template.each);
        Arc::new(Self {
            before: fill(template.before),
            each,
            after: fill(template.after),
            order,
            is_strict: template.is_strict,
        })
    }

    /// The text for `width` calls.
    pub(crate) fn text(&self, width: usize) -> String {
        let each = vec![&self.each[..]; width].join(",");
        format!("{}{each}{}", self.before, self.after)
    }
}

pub(crate) const CLAIM: MultiRowTemplate = MultiRowTemplate {
    before: "INSERT INTO {t} (record_key, op, layout, state, owner, fence, attempts, detail, \
             retain_ms, fingerprint, body, expires_us, version) VALUES ",
    each: "(?1, ?2, ?3, ?4, ?5, ?11, ?6, ?7, ?8, ?9, NULL, ?11 + ?10, 1)",
    after: " ON CONFLICT (record_key) DO NOTHING",
    is_strict: true,
};

pub(crate) const COMPLETE: MultiRowTemplate = MultiRowTemplate {
    before: "WITH v (k, s, d, r, b, life, o, f, a, p, now) AS (VALUES ",
    each: "(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    after: ") UPDATE {t} SET layout = 50, state = v.s, detail = v.d, retain_ms = v.r, body = v.b, \
            expires_us = v.now + v.life, version = version + 1 FROM v \
            WHERE record_key = v.k AND owner = v.o AND fence = v.f AND attempts = v.a \
            AND fingerprint = v.p AND layout IN (50, 51, 52) AND state IN ('P', 'Q') AND expires_us > v.now",
    // A caller that finds its own answer in the record has stored it.
    is_strict: false,
};
