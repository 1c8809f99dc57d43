//! The settings that a layer and its services share.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::http::request::Parts;
use ::http::{HeaderMap, HeaderValue, Method, Request, Response};
use bytes::Bytes;

use super::domain::DomainKey;
use super::exchange::Rules;
use super::iso8601::iso8601_duration;
use super::key::{IdempotencyKey, KeyRefusal};
use super::problem::Problem;
use super::profile::Profile;
use super::scope::CallerScope;
use super::status::KeyVerdict;
use super::target::asked_for;
use crate::call::Call;
use crate::call::context::Context;
use crate::call::engine::Engine;
use crate::call::run_limit::{Gate, Quota, RunLimit, ScopeLimit};
use crate::env::clock::Clock;
use crate::error::{Error, ErrorKind};
use crate::identity::operation::Operation;
use crate::outcome::reconciled::Reconciled;
use crate::policy::{EffectivePolicy, OnPanic, OnRunning};
use crate::record::FOREVER;

/// The conversion of a problem into a response.
#[derive(Clone)]
pub(super) enum OnProblem {
    Plain(Arc<Plain>),
    OfRequest(Arc<OfRequest>),
}

type Plain = dyn Fn(Problem) -> Response<Bytes> + Send + Sync;
type OfRequest = dyn Fn(Problem, &Parts) -> Response<Bytes> + Send + Sync;

/// A reconcile hook: whether an earlier attempt at a request was done.
pub(super) type RequestHook = dyn Fn(Request<Bytes>, Context) -> HookFuture + Send + Sync;

/// A quota: decides whether a scope may have another record.
type RequestQuota = dyn Fn(&str, &Parts) -> Result<(), Duration> + Send + Sync;

type RequestLabel = dyn Fn(&Parts) -> Option<String> + Send + Sync;

pub(super) type HookFuture = Pin<Box<dyn Future<Output = Reconciled<Response<Bytes>>> + Send>>;

/// The state that a layer and its services share.
#[derive(Clone)]
pub(crate) struct LayerSettings {
    engine: Engine,
    name: Cow<'static, str>,
    pub(super) scope: CallerScope,
    pub(super) rules: Arc<Rules>,
    pub(super) max_body_bytes: usize,
    pub(super) body_timeout: Duration,
    pub(super) reconcile: Option<Arc<RequestHook>>,
    pub(super) max_running: Option<Arc<RunLimit>>,
    pub(super) max_running_per_scope: Option<Arc<ScopeLimit>>,
    pub(super) quota: Option<Arc<RequestQuota>>,
    pub(super) label: Option<Arc<RequestLabel>>,
    pub(super) documented_at: Option<String>,
    pub(super) on_problem: Option<OnProblem>,
}

impl LayerSettings {
    /// The defaults of a layer.
    pub(super) fn new(engine: Engine, name: Cow<'static, str>, scope: CallerScope) -> Self {
        Self {
            engine,
            name,
            scope,
            rules: Arc::default(),
            max_body_bytes: 2 << 20,
            body_timeout: Duration::from_secs(30),
            reconcile: None,
            max_running: None,
            max_running_per_scope: None,
            quota: None,
            label: None,
            documented_at: None,
            on_problem: None,
        }
    }

    /// The layer's profile.
    pub(super) fn profile(&self) -> &Profile {
        &self.rules.profile
    }

    /// The time for which a stored response is replayed at least.
    pub(super) fn life(&self) -> Result<Duration, Error> {
        let policy = EffectivePolicy::of_call(self.profile().policy, &self.engine.core.defaults);
        let policy = policy
            .map_err(|why| Error::new(ErrorKind::InvalidPolicy, self.operation()).detail(why))?;
        Ok(policy.ttl().min(policy.error_ttl()))
    }

    /// The headers that echo the key of a request, if any.
    pub(super) fn echo(&self, request: &HeaderMap) -> Option<Box<HeaderMap>> {
        let profile = self.profile();
        if !profile.echoes_key && profile.life_header.is_none() {
            return None;
        }
        let mut echo = Box::<HeaderMap>::default();
        if profile.echoes_key
            && let Some(name) = profile.source.header_of_key()
            && let Some(key) = request.get(name)
        {
            echo.insert(name, key.clone());
        }
        if let Some(name) = &profile.life_header
            // A response that chooses its life has another one.
            && self.rules.life.is_none()
            && let Ok(life) = self.life()
            && life < FOREVER
            && let Ok(life) = HeaderValue::try_from(iso8601_duration(life))
        {
            echo.insert(name, life);
        }
        Some(echo)
    }

    /// Whether a request of this method and with these headers is protected.
    pub(super) fn covers(&self, method: &Method, headers: &HeaderMap) -> bool {
        let profile = self.profile();
        profile.methods.contains(method) && profile.source.applies(headers)
    }

    /// The operation of every call of the layer.
    pub(super) fn operation(&self) -> Operation {
        Operation::new(self.name.clone())
    }

    /// Reads the key of a request; `None`: it has none, needs none.
    ///
    /// `body` is empty unless the key is in it.
    pub(super) fn key(
        &self,
        request: &Parts,
        body: &[u8],
    ) -> Result<Option<IdempotencyKey>, KeyRefusal> {
        let Profile { source, keys, .. } = self.profile();
        match source.read(keys, request, body)? {
            None if self.profile().required => Err(KeyRefusal::Missing),
            key => Ok(key),
        }
    }

    /// The problem of a request without a valid key.
    pub(super) fn of_key(&self, refusal: &KeyRefusal) -> Problem {
        Problem::of_key(refusal, self.profile().source.explain(refusal))
    }

    /// The moment at which a refusal must leave, by the engine's clock.
    pub(super) fn due(&self, request: &HeaderMap) -> Option<Duration> {
        let timeout = self.rules.protocol.as_ref()?.timeout(request)?;
        // For the way there and back, which the client's time includes.
        let reserve = (timeout / 10).min(Duration::from_secs(1));
        let now = self.clock().now();
        Some(now.saturating_add(timeout.saturating_sub(reserve)))
    }

    /// Restricts the wait for a running call to the time until `due`.
    fn limit_wait(&self, call: &mut Call, due: Option<Duration>) {
        // Of a policy that is not valid the call itself makes an error.
        let effective = |policy| EffectivePolicy::of_call(policy, &self.engine.core.defaults);
        if let Some(due) = due
            && let Ok(policy) = effective(call.policy)
        {
            let left = due.saturating_sub(self.clock().now());
            call.on_running(OnRunning::Wait(policy.wait().min(left)));
        }
    }

    /// The largest response that is stored.
    pub(super) fn max_response_bytes(&self) -> usize {
        self.rules.max_bytes(&self.engine.core.format)
    }

    /// The call of a request of this scope and digest.
    ///
    /// Its key is among its extensions. `head` is its [`head`](Self::head), `due` the latest moment of a refusal.
    #[allow(
        clippy::needless_pass_by_value,
        reason = "a future that lends them has room for them until its end"
    )]
    pub(super) fn call(
        &self,
        scope: Option<String>,
        asked: [u8; 32],
        request: &Parts,
        head: Option<&Arc<Parts>>,
        due: Option<Duration>,
    ) -> Call {
        let key = request.extensions.get::<IdempotencyKey>();
        let key = key.map(IdempotencyKey::as_str).unwrap_or_default();
        let path = asked_for(request).path();
        let key = self.profile().domain.key(&request.method, path, key);
        let mut call = self.named(scope.as_deref(), &key);
        call.request(&asked);
        self.limit_wait(&mut call, due);
        if let Some(label) = self.label.as_ref().and_then(|label| label(request)) {
            call.label(&label);
        }
        call.gate(self.gate(scope.as_deref(), head));
        call
    }

    /// The calls of all requests with this key.
    pub(super) fn named(&self, scope: Option<&str>, key: &DomainKey<'_>) -> Call {
        let mut call = Call::new(self.operation());
        call.engine(self.engine.clone());
        if let Some(scope) = scope {
            call.scope(scope);
        }
        call.key(key);
        if self.reconcile.is_some() {
            call.reconciles();
        }
        call.policy = self.profile().policy;
        call.policy
            .on_panic
            .get_or_insert(match self.profile().status.without_response() {
                KeyVerdict::Release => OnPanic::Release,
                KeyVerdict::Store | KeyVerdict::Unknown => OnPanic::Unknown,
            });
        call
    }

    /// The head of a request, if a refusal or quota needs it.
    pub(super) fn head(&self, request: &Parts) -> Option<Arc<Parts>> {
        let is_told = matches!(self.on_problem, Some(OnProblem::OfRequest(_)));
        (is_told || self.quota.is_some()).then(|| Arc::new(request.clone()))
    }

    /// The checks before a claim of this scope. `head`: see [`head`](Self::head).
    fn gate(&self, scope: Option<&str>, head: Option<&Arc<Parts>>) -> Option<Box<Gate>> {
        let (running, in_scope) = (&self.max_running, &self.max_running_per_scope);
        let quota = self.quota.as_ref().zip(head);
        if running.is_none() && in_scope.is_none() && quota.is_none() {
            return None;
        }
        let scope: Arc<str> = scope.unwrap_or_default().into();
        Some(Box::new(Gate {
            running: running.clone(),
            in_scope: (in_scope.as_ref()).map(|limit| (Arc::clone(limit), Arc::clone(&scope))),
            quota: quota.map(|(quota, head)| -> Box<Quota> {
                let (quota, head) = (Arc::clone(quota), Arc::clone(head));
                Box::new(move || quota(&scope, &head))
            }),
        }))
    }

    /// The engine's clock.
    pub(super) fn clock(&self) -> &dyn Clock {
        &*self.engine.core.clock
    }

    /// The response of a refusal. `request`: the [`head`](Self::head) of the request.
    pub(super) fn refusal(&self, problem: Problem, request: Option<&Parts>) -> Response<Bytes> {
        let problem = match &self.documented_at {
            Some(uri) => problem.documented_at(uri),
            None => problem,
        };
        let is_retryable = problem.is_retryable();
        let mut response = match (&self.on_problem, request) {
            (Some(OnProblem::Plain(on_problem)), _) => on_problem(problem),
            (Some(OnProblem::OfRequest(on_problem)), Some(request)) => on_problem(problem, request),
            _ => self.profile().refusals.response(&problem).map(Into::into),
        };
        self.profile()
            .status
            .advise(response.headers_mut(), is_retryable);
        // A layer around this one must not store the refusal, however it is worded.
        let said = response.extensions().get::<KeyVerdict>().copied();
        let verdict = said.unwrap_or(KeyVerdict::Release);
        response.extensions_mut().insert(verdict);
        response
    }
}

debug_fields!(LayerSettings {
    name,
    scope,
    rules,
    max_body_bytes,
    body_timeout,
    max_running,
    max_running_per_scope
});
