//! The service on poem, whose headers are those of the crate `http`.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use http::HeaderMap;
use idem_runtime::http::{KeyRefusal, KeyRules};
use poem::listener::TcpAcceptor;
use poem::web::{Data, Json};
use poem::{EndpointExt as _, Response, Route, Server, handler, post};

use crate::bank::{self, Bank, Order};
use crate::exchange::{client, response};

/// The handler of `POST /transfers`.
#[handler]
async fn transfer(
    Data(bank): Data<&Arc<Bank>>,
    headers: &HeaderMap,
    Json(order): Json<Order>,
) -> Response {
    let outcome = async {
        let client = client(headers)?;
        let key = KeyRules::default().read(headers)?;
        let key = key.ok_or(KeyRefusal::Missing)?;
        Ok(bank::transfer(Arc::clone(bank), client, key, order).await?)
    };
    let (head, body) = response(outcome.await).into_parts();
    let mut response = Response::from(head.status);
    *response.headers_mut() = head.headers;
    response.set_body(body);
    response
}

/// Serves the bank.
///
/// # Errors
///
/// The listener's.
pub async fn serve(listener: TcpListener, bank: Arc<Bank>) -> io::Result<()> {
    let app = Route::new().at("/transfers", post(transfer)).data(bank);
    let listener = TcpAcceptor::from_std(listener)?;
    Server::new_with_acceptor(listener).run(app).await
}
