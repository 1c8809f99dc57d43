//! The service on actix-web, whose headers are of an earlier `http`.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Json, post};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use http::{HeaderMap, HeaderName, HeaderValue};
use idem_runtime::http::{KeyRefusal, KeyRules};

use crate::bank::{self, Bank, Order};
use crate::exchange::{client, response};

/// The handler of `POST /transfers`.
async fn transfer(
    bank: Data<Bank>,
    request: HttpRequest,
    Json(order): Json<Order>,
) -> HttpResponse {
    let headers = headers(&request);
    let outcome = async {
        let client = client(&headers)?;
        let key = KeyRules::default().read(&headers)?;
        let key = key.ok_or(KeyRefusal::Missing)?;
        Ok(bank::transfer(bank.into_inner(), client, key, order).await?)
    };
    let (head, body) = response(outcome.await).into_parts();
    let status = StatusCode::from_u16(head.status.as_u16()).unwrap_or_default();
    let mut response = HttpResponse::build(status);
    for (name, value) in &head.headers {
        response.append_header((name.as_str(), value.as_bytes()));
    }
    response.body(body)
}

/// Every header, a repeated one as often as it came.
fn headers(request: &HttpRequest) -> HeaderMap {
    let headers = request.headers().iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        Some((name, HeaderValue::from_bytes(value.as_bytes()).ok()?))
    });
    headers.flatten().collect()
}

/// Serves the bank.
///
/// # Errors
///
/// The listener's.
pub async fn serve(listener: TcpListener, bank: Arc<Bank>) -> io::Result<()> {
    let bank = Data::from(bank);
    let app = move || {
        App::new()
            .app_data(bank.clone())
            .route("/transfers", post().to(transfer))
    };
    HttpServer::new(app)
        .workers(2)
        .listen(listener)?
        .run()
        .await
}
