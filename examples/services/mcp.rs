//! The service as a tool of a model: the Model Context Protocol, revision 2026-07-28.
//!
//! That revision has no sessions, and a client whose connection broke must send its call again with another JSON-RPC id.
//! So neither names the transfer. The key is the client's: in `_meta`, where the program that runs the model puts it, or
//! an argument, which the model fills in.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::WWW_AUTHENTICATE;
use http::request::Parts;
use idem_runtime::http::{IdempotencyKey, Problem};
use rmcp::handler::server::tool::Extension;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::CallToolResult;
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use serde::Deserialize;

use crate::bank::{self, Bank, Order, TransferError};
use crate::exchange;

/// The member of `_meta` that has the key. The prefix of its name is a domain of the service, reversed.
pub const KEY: &str = "com.example.bank/idempotency-key";

/// The authenticated client.
#[derive(Clone)]
struct Client(String);

#[derive(Deserialize, schemars::JsonSchema)]
struct Arguments {
    /// The account that gets the money.
    to: String,
    /// The amount, in cents.
    cents: u64,
    /// A new UUID for a new transfer; the same one in each repeat.
    idempotency_key: Option<String>,
}

#[derive(Clone)]
struct Tools(Arc<Bank>);

#[tool_router]
impl Tools {
    /// Moves money from your account. A repeat with the same `idempotency_key` moves nothing, and has the same result.
    // The hint says that the same arguments have no further effect: a call without a key is refused.
    #[tool(annotations(idempotent_hint = true))]
    async fn transfer(
        &self,
        Extension(parts): Extension<Parts>,
        context: RequestContext<RoleServer>,
        Parameters(arguments): Parameters<Arguments>,
    ) -> Result<CallToolResult, String> {
        let Some(Client(client)) = parts.extensions.get().cloned() else {
            return Err("nothing was moved: it is not known who you are".into());
        };
        let key = context.meta.get(KEY).and_then(|key| key.as_str());
        let key = key.map(str::to_owned).or(arguments.idempotency_key);
        let key = key.ok_or(
            "nothing was moved, because there is no key. Call again with `idempotency_key`: a new UUID for this \
             transfer, and the same one whenever you repeat it.",
        )?;
        let order = Order {
            to: arguments.to,
            cents: arguments.cents,
        };
        let transfer = bank::transfer(Arc::clone(&self.0), client, IdempotencyKey(key), order);
        let receipt = transfer.await.map_err(|error| advice(&error))?;
        let receipt = serde_json::to_value(receipt.value()).map_err(|error| error.to_string())?;
        Ok(CallToolResult::structured(receipt))
    }
}

#[tool_handler]
impl ServerHandler for Tools {}

/// A model's options after a transfer without a receipt. Clients show it the text of a tool's error, but no JSON-RPC
/// error.
fn advice(error: &TransferError) -> String {
    let error = match error {
        TransferError::NotEnoughMoney => {
            return "nothing was moved: there is not enough money on your account.".into();
        }
        TransferError::NotConfirmed => {
            return "it is not known whether the money was moved. Do not call again: ask a human to look.".into();
        }
        TransferError::Idempotency(error) => error,
    };
    let problem = Problem::from(error);
    let advice = match problem.code() {
        "key-reused" => "Use a new `idempotency_key` for another transfer.".into(),
        "key-invalid" => "Call again with a UUID as `idempotency_key`.".into(),
        _ if problem.is_retryable() => {
            let seconds = problem.retry_after().map_or(0, |after| after.as_secs()) + 1;
            format!("Call again in {seconds} s with the same `idempotency_key` and arguments.")
        }
        _ => {
            let instance = error.instance();
            format!("Do not call again: ask a human to look, and name {instance}.")
        }
    };
    format!("{}. {advice}", problem.detail())
}

/// Refuses requests without a client, and hands it to the tools.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, impl IntoResponse> {
    let challenge = [(WWW_AUTHENTICATE, "Bearer")];
    let Ok(client) = exchange::client(request.headers()) else {
        return Err((StatusCode::UNAUTHORIZED, challenge));
    };
    request.extensions_mut().insert(Client(client));
    Ok(next.run(request).await)
}

/// Serves the bank.
///
/// # Errors
///
/// The listener's.
pub async fn serve(listener: TcpListener, bank: Arc<Bank>) -> io::Result<()> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .enforce_origin_validation();
    let tools = move || Ok(Tools(Arc::clone(&bank)));
    let service = StreamableHttpService::new(tools, NeverSessionManager::default().into(), config);
    let app = Router::new()
        .route_service("/mcp", service)
        .layer(from_fn(authenticate));
    axum::serve(tokio::net::TcpListener::from_std(listener)?, app).await
}
