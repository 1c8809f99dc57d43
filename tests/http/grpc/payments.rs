//! A service of tonic behind a socket, without generated code, with clients.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::HeaderMap;
use http_body::Body as _;
use idem_runtime::grpc::GrpcLayer;
use idem_tests::shop::patiently;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::client::Grpc as ClientGrpc;
use tonic::codec::CompressionEncoding::Gzip;
use tonic::server::{Grpc, NamedService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt as _;
use tower::{Layer, Service, ServiceExt as _, service_fn};

pub(crate) const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";

pub(crate) const CHARGE: &str = "/shop.v1.Payments/Charge";
pub(crate) const WATCH: &str = "/shop.v1.Payments/Watch";
pub(crate) const UPLOAD: &str = "/shop.v1.Payments/Upload";

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Order {
    #[prost(string, tag = "1")]
    pub(crate) item: String,
    #[prost(uint64, tag = "2")]
    pub(crate) cents: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) scan: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Receipt {
    #[prost(uint64, tag = "1")]
    pub(crate) number: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) scan: Vec<u8>,
}

pub(crate) type Charged = Result<Response<Receipt>, Status>;
type Charge = dyn Fn(u64, Request<Order>) -> BoxFuture<'static, Charged> + Send + Sync;

/// The service: `Charge` is a function of the number of its run, `Watch` and `Upload` are streams that count. The item of
/// a `Watch` is the code of the error that ends it, if it is a number.
#[derive(Clone)]
pub(crate) struct Payments {
    charge: Arc<Charge>,
    runs: Arc<AtomicUsize>,
}

impl Payments {
    /// A service that charges by this function.
    pub(crate) fn new<F>(charge: impl Fn(u64, Request<Order>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Charged> + Send + 'static,
    {
        Self {
            charge: Arc::new(move |run, order| Box::pin(charge(run, order))),
            runs: Arc::default(),
        }
    }

    /// A service whose receipts have the number of the run.
    pub(crate) fn numbered() -> Self {
        Self::new(|run, _| async move { Ok(receipt(run)) })
    }

    /// How often a method ran.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    fn run(&self) -> u64 {
        self.runs.fetch_add(1, Ordering::SeqCst) as u64 + 1
    }
}

pub(crate) fn receipt(number: u64) -> Response<Receipt> {
    Response::new(Receipt {
        number,
        scan: Vec::new(),
    })
}

impl NamedService for Payments {
    const NAME: &'static str = "shop.v1.Payments";
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<B> Service<http::Request<B>> for Payments
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<BoxError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: http::Request<B>) -> Self::Future {
        let it = self.clone();
        let mut grpc = Grpc::new(ProstCodec::<Receipt, Order>::default())
            .accept_compressed(Gzip)
            .send_compressed(Gzip);
        Box::pin(async move {
            Ok(match call.uri().path() {
                CHARGE => {
                    let charge = move |order| (it.charge)(it.run(), order);
                    grpc.unary(service_fn(charge), call).await
                }
                WATCH => {
                    let watch = move |order: Request<Order>| {
                        it.run();
                        let Order { item, cents, .. } = order.into_inner();
                        async move {
                            let receipts =
                                (1..=cents).map(|number| Ok(receipt(number).into_inner()));
                            let error = item.parse().ok().map(Code::from_i32);
                            let end = error.map(|code| Err(Status::new(code, "in a stream")));
                            let receipts = receipts.chain(end);
                            let receipts: BoxStream<'_, _> = stream::iter(receipts).boxed();
                            Ok(Response::new(receipts))
                        }
                    };
                    grpc.server_streaming(service_fn(watch), call).await
                }
                UPLOAD => {
                    let upload = move |orders: Request<Streaming<Order>>| {
                        it.run();
                        async move {
                            let mut orders = orders.into_inner();
                            let mut number = 0;
                            while orders.message().await?.is_some() {
                                number += 1;
                            }
                            Ok(receipt(number))
                        }
                    };
                    grpc.client_streaming(service_fn(upload), call).await
                }
                _ => Status::unimplemented("there is no such method").into_http(),
            })
        })
    }
}

/// A server on loopback, until it is dropped.
pub(crate) struct Shop {
    pub(crate) addr: SocketAddr,
    pub(crate) payments: Payments,
    task: JoinHandle<()>,
}

impl Shop {
    pub(crate) async fn open(payments: Payments, layer: GrpcLayer) -> Self {
        Self::serve(payments, layer).await
    }

    /// With other layers.
    pub(crate) async fn serve<L, R>(payments: Payments, layer: L) -> Self
    where
        L: Layer<tonic::service::Routes> + Clone + Send + Sync + 'static,
        L::Service: Service<http::Request<Body>, Response = http::Response<R>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        <L::Service as Service<http::Request<Body>>>::Future: Send,
        R: http_body::Body<Data = Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let incoming = TcpIncoming::from(listener);
        let server = Server::builder().layer(layer).add_service(payments.clone());
        let task = tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
        Self {
            addr,
            payments,
            task,
        }
    }

    /// A client with a connection of its own.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.addr).await
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
    pub(crate) grpc: ClientGrpc<Channel>,
}

impl Client {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
        let channel = patiently("a connection", endpoint.connect()).await.unwrap();
        Self {
            grpc: ClientGrpc::new(channel.clone()),
            channel,
        }
    }

    /// Calls a method as a unary one.
    pub(crate) async fn call(&self, path: &'static str, order: Request<Order>) -> Charged {
        let mut grpc = self.grpc.clone();
        let codec = ProstCodec::<Order, Receipt>::default();
        let path = http::uri::PathAndQuery::from_static(path);
        patiently("an answer", async {
            let ready = grpc.ready().await;
            ready.map_err(|error| Status::unavailable(error.to_string()))?;
            grpc.unary(order, path, codec).await
        })
        .await
    }

    pub(crate) async fn charge(&self, order: Request<Order>) -> Charged {
        self.call(CHARGE, order).await
    }

    /// Sends these bytes as a call's body. Reads the response as it arrives.
    pub(crate) async fn raw(&self, mut call: http::Request<Body>) -> Raw {
        let path = call.uri().path().to_owned();
        *call.uri_mut() = format!("http://shop.test{path}").parse().unwrap();
        let mut channel = self.channel.clone();
        let response = patiently("a response", async {
            channel.ready().await.unwrap().call(call).await.unwrap()
        })
        .await;
        let (parts, mut body) = response.into_parts();
        let (mut data, mut trailers) = (Vec::new(), None);
        loop {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            let Some(frame) = patiently("a frame", frame).await else {
                break;
            };
            match frame.unwrap().into_data() {
                Ok(bytes) => data.extend(bytes),
                Err(frame) => trailers = frame.into_trailers().ok(),
            }
        }
        Raw {
            http: parts.status,
            headers: parts.headers,
            data,
            trailers,
        }
    }
}

/// A response as it is on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Raw {
    pub(crate) http: http::StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) data: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Raw {
    /// Without what belongs to one response; and whether it is a replay.
    pub(crate) fn lasting(mut self) -> (Self, bool) {
        self.headers.remove("date");
        let is_replayed = self.headers.remove("idempotent-replayed");
        (self, is_replayed.is_some_and(|it| it == "true"))
    }

    pub(crate) fn status(&self) -> Status {
        let trailers = self.trailers.as_ref();
        let status = Status::from_header_map(&self.headers);
        let status = status.or_else(|| Status::from_header_map(trailers?));
        status.expect("a status")
    }
}

/// A call of `Charge` with this key and this body.
pub(crate) fn raw(key: &str, body: impl Into<Bytes>) -> http::Request<Body> {
    let call = http::Request::post(CHARGE)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("idempotency-key", key);
    call.body(Body::new(axum::body::Body::from(body.into())))
        .unwrap()
}

/// The frame of a message.
pub(crate) fn frame(order: &Order) -> Vec<u8> {
    let message = prost::Message::encode_to_vec(order);
    let length = u32::try_from(message.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), &message].concat()
}

/// A call without a key.
pub(crate) fn bare(item: &str) -> Request<Order> {
    Request::new(Order {
        item: item.to_owned(),
        cents: 250,
        scan: Vec::new(),
    })
}

/// A call with this key.
pub(crate) fn keyed(key: &str, item: &str) -> Request<Order> {
    with("idempotency-key", key, bare(item))
}

/// A call with the usual key.
pub(crate) fn order(item: &str) -> Request<Order> {
    keyed(KEY, item)
}

/// The same call with this metadata as well.
pub(crate) fn with(name: &'static str, value: &str, mut call: Request<Order>) -> Request<Order> {
    call.metadata_mut().append(name, value.parse().unwrap());
    call
}

/// The number of the receipt, and whether it is a replay.
pub(crate) fn numbered(charged: Charged) -> (u64, bool) {
    let charged = charged.unwrap_or_else(|status| panic!("{status:?}"));
    let is_replayed = charged.metadata().contains_key("idempotent-replayed");
    (charged.get_ref().number, is_replayed)
}

/// The code of a refusal of idem, and its reason.
pub(crate) fn refused(charged: Charged) -> (Code, String) {
    let status = charged.expect_err("a refusal");
    let info = status.get_details_error_info();
    let info = info.unwrap_or_else(|| panic!("no refusal of idem: {status:?}"));
    assert_eq!(info.domain, "idem-runtime");
    (status.code(), info.reason)
}
