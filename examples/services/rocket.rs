//! The service on rocket, whose headers are types of its own.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use http::{HeaderMap, HeaderName, HeaderValue};
use idem_runtime::http::{KeyRefusal, KeyRules};
use rocket::config::{LogLevel, Shutdown};
use rocket::fairing::AdHoc;
use rocket::http::{Header, Status};
use rocket::request::{FromRequest, Outcome};
use rocket::response::Responder;
use rocket::serde::json::Json;
use rocket::{Config, Request, Response, State};

use crate::bank::{self, Bank, Order};
use crate::exchange::{client, response};

/// Every header, a repeated one as often as it came.
struct Headers(HeaderMap);

#[rocket::async_trait]
impl<'r> FromRequest<'r> for Headers {
    type Error = std::convert::Infallible;

    async fn from_request(request: &'r Request<'_>) -> Outcome<Self, Self::Error> {
        let headers = request.headers().iter().map(|header| {
            let name = HeaderName::try_from(header.name().as_str()).ok()?;
            Some((name, HeaderValue::try_from(header.value()).ok()?))
        });
        Outcome::Success(Self(headers.flatten().collect()))
    }
}

/// A response in the types of the crate `http`.
struct Reply(http::Response<Vec<u8>>);

impl<'r> Responder<'r, 'static> for Reply {
    fn respond_to(self, _: &'r Request<'_>) -> rocket::response::Result<'static> {
        let (head, body) = self.0.into_parts();
        let mut response = Response::build();
        response.status(Status::new(head.status.as_u16()));
        for (name, value) in &head.headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            response.header_adjoin(Header::new(name.to_string(), value));
        }
        response.sized_body(body.len(), io::Cursor::new(body)).ok()
    }
}

#[rocket::post("/transfers", data = "<order>")]
async fn transfer(bank: &State<Arc<Bank>>, headers: Headers, order: Json<Order>) -> Reply {
    let outcome = async {
        let client = client(&headers.0)?;
        let key = KeyRules::default().read(&headers.0)?;
        let key = key.ok_or(KeyRefusal::Missing)?;
        Ok(bank::transfer(Arc::clone(bank), client, key, order.0).await?)
    };
    Reply(response(outcome.await))
}

/// Serves the bank on a free loopback port, and sends the address.
///
/// # Errors
///
/// Those of the launch.
pub async fn serve(address: Sender<SocketAddr>, bank: Arc<Bank>) -> Result<(), rocket::Error> {
    let config = Config {
        port: 0,
        log_level: LogLevel::Off,
        shutdown: Shutdown {
            ctrlc: false,
            ..Shutdown::default()
        },
        ..Config::debug_default()
    };
    let liftoff = AdHoc::on_liftoff("address", move |rocket| {
        let port = rocket.config().port;
        Box::pin(async move {
            // A caller that gave up has dropped the receiver.
            let _ = address.send((Ipv4Addr::LOCALHOST, port).into());
        })
    });
    let app = rocket::custom(config).manage(bank).attach(liftoff);
    app.mount("/", rocket::routes![transfer]).launch().await?;
    Ok(())
}
