//! The service on salvo, whose headers are those of the crate `http`.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use idem_runtime::http::{KeyRefusal, KeyRules};
use salvo::conn::tcp::TcpAcceptor;
use salvo::http::ParseError;
use salvo::{Request, Response, Router, Server, handler};

use crate::bank::{self, Bank, Order};
use crate::exchange::{client, response};

/// The handler of `POST /transfers`.
struct Transfers(Arc<Bank>);

#[handler]
impl Transfers {
    async fn handle(&self, request: &mut Request, reply: &mut Response) -> Result<(), ParseError> {
        let order: Order = request.parse_json().await?;
        let headers = request.headers();
        let outcome = async {
            let client = client(headers)?;
            let key = KeyRules::default().read(headers)?;
            let key = key.ok_or(KeyRefusal::Missing)?;
            Ok(bank::transfer(Arc::clone(&self.0), client, key, order).await?)
        };
        let (head, body) = response(outcome.await).into_parts();
        reply.status_code(head.status).body(body);
        reply.set_headers(head.headers);
        Ok(())
    }
}

/// Serves the bank.
///
/// # Errors
///
/// The listener's.
pub async fn serve(listener: TcpListener, bank: Arc<Bank>) -> io::Result<()> {
    let app = Router::with_path("transfers").post(Transfers(bank));
    let listener = tokio::net::TcpListener::from_std(listener)?;
    Server::new(TcpAcceptor::try_from(listener)?)
        .serve(app)
        .await;
    Ok(())
}
