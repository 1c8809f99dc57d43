//! The subscriber and the exporter of this process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) name: &'static str,
    pub(crate) target: String,
    pub(crate) parent: Option<&'static str>,
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// Their levels, and their fields in text.
    pub(crate) events: Vec<(Level, String)>,
    pub(crate) is_closed: bool,
}

impl Seen {
    /// The text of a field; empty: it was not recorded.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Whether an event begins so.
    pub(crate) fn has(&self, event: &str) -> bool {
        self.events.iter().any(|(_, text)| text.starts_with(event))
    }

    pub(crate) fn level(&self, event: &str) -> Option<Level> {
        let mut events = self.events.iter();
        let found = events.find(|(_, text)| text.starts_with(event));
        found.map(|(level, _)| *level)
    }
}

#[derive(Default)]
struct Spans {
    seen: Mutex<Vec<Seen>>,
    changed: Notify,
}

/// The contents of this process's spans and exporter.
pub(crate) struct All {
    spans: &'static Spans,
    pub(crate) exporter: PrometheusHandle,
}

/// Installs both, once.
pub(crate) fn all() -> &'static All {
    static ALL: OnceLock<All> = OnceLock::new();
    ALL.get_or_init(|| {
        let spans: &'static Spans = Box::leak(Box::default());
        let subscriber = tracing_subscriber::registry().with(Recording(spans));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        let exporter = PrometheusBuilder::new()
            .set_buckets(&idem_runtime::observe::MetricsObserver::SECONDS)
            .unwrap()
            .install_recorder()
            .unwrap();
        All { spans, exporter }
    })
}

impl All {
    pub(crate) fn spans(&self) -> Vec<Seen> {
        let seen = self.spans.seen.lock();
        seen.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn calls(&self, operation: &str) -> Vec<Seen> {
        let mut spans = self.spans();
        spans.retain(|span| span.field("idem.operation") == operation);
        spans
    }

    pub(crate) async fn wait(&self, operation: &str, is_so: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        loop {
            let changed = self.spans.changed.notified();
            let calls = self.calls(operation);
            if is_so(&calls) {
                return calls;
            }
            changed.await;
        }
    }

    /// The sum of a metric's samples whose labels contain each of these.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.exporter.render();
        let samples = text.lines().filter_map(|line| {
            let (sample, value) = line.rsplit_once(' ')?;
            let (of, its) = sample.split_once('{').unwrap_or((sample, ""));
            let is_it = of == name && labels.iter().all(|label| its.contains(label));
            is_it.then(|| value.parse::<f64>().unwrap())
        });
        samples.sum()
    }
}

struct Recording(&'static Spans);

/// The place of a span among the observed ones.
struct Place(usize);

impl Recording {
    fn change(&self, change: impl FnOnce(&mut Vec<Seen>)) {
        let seen = self.0.seen.lock();
        change(&mut seen.unwrap_or_else(PoisonError::into_inner));
        self.0.changed.notify_waiters();
    }
}

impl<S: Subscriber + for<'l> LookupSpan<'l>> Layer<S> for Recording {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        metadata.target().starts_with("idem") || metadata.target().starts_with("observed")
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let seen = Seen {
            name: span.name(),
            target: span.metadata().target().to_owned(),
            parent: span.parent().map(|parent| parent.name()),
            fields: fields.0,
            ..Seen::default()
        };
        self.change(|all| {
            span.extensions_mut().insert(Place(all.len()));
            all.push(seen);
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut fields = Fields::default();
        values.record(&mut fields);
        let extensions = span.extensions();
        let Place(place) = extensions.get().unwrap();
        self.change(|all| all[*place].fields.extend(fields.0));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_default();
        let text = format!("{message} {:?}", fields.0);
        let of = (*event.metadata().level(), text);
        let Some(span) = context.event_span(event) else {
            return self.change(|all| {
                all.push(Seen {
                    name: "no span",
                    fields: fields.0,
                    events: vec![of],
                    ..Seen::default()
                });
            });
        };
        let extensions = span.extensions();
        let Place(place) = extensions.get().unwrap();
        self.change(|all| all[*place].events.push(of));
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        let extensions = span.extensions();
        let Place(place) = extensions.get().unwrap();
        self.change(|all| all[*place].is_closed = true);
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}
