//! A client of the services, as small as one can be: one request on each connection.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use crate::bank::Order;
use crate::mcp;

/// The headers and the body of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status line and the headers.
    pub head: String,
    /// The body.
    pub body: String,
}

impl Reply {
    /// The status.
    #[must_use]
    pub fn status(&self) -> &str {
        self.head.get(9..12).unwrap_or_default()
    }

    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(header, _)| header.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value)
    }
}

/// Sends an order to a web framework.
///
/// # Errors
///
/// Those of the connection.
pub fn transfer(
    to: SocketAddr,
    client: &str,
    key: Option<&str>,
    order: &Order,
) -> io::Result<Reply> {
    let mut headers = vec![("authorization", format!("Bearer {client}"))];
    headers.extend(key.map(|key| ("idempotency-key", format!("{key:?}"))));
    post(to, "/transfers", &headers, &serde_json::to_value(order)?)
}

/// Sends a document of JSON, and reads the response.
///
/// # Errors
///
/// Those of the connection; it breaks where the response is not complete.
pub fn post(
    to: SocketAddr,
    path: &str,
    headers: &[(&str, String)],
    body: &Value,
) -> io::Result<Reply> {
    let mut connection = TcpStream::connect(to)?;
    connection.set_read_timeout(Some(Duration::from_mins(5)))?;
    let body = body.to_string();
    // In one piece: the proxy of the tests finds a request by its bytes.
    let mut request = Vec::new();
    write!(
        request,
        "POST {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n"
    )?;
    for (name, value) in headers {
        write!(request, "{name}: {value}\r\n")?;
    }
    write!(request, "content-type: application/json\r\n")?;
    write!(request, "accept: application/json, text/event-stream\r\n")?;
    write!(request, "content-length: {}\r\n\r\n{body}", body.len())?;
    connection.write_all(&request)?;
    let mut response = String::new();
    connection.read_to_string(&mut response)?;
    let (head, body) = response
        .split_once("\r\n\r\n")
        .ok_or(io::ErrorKind::UnexpectedEof)?;
    let reply = Reply {
        head: head.to_owned(),
        body: body.to_owned(),
    };
    if reply.header("content-length") == Some(&body.len().to_string()) {
        Ok(reply)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Calls the tool `transfer`. The key is a member of `_meta`; the arguments are the order, and may contain it instead.
///
/// # Errors
///
/// Those of the connection, or of a response that is not JSON.
pub fn call_tool(
    to: SocketAddr,
    id: usize,
    client: &str,
    key: Option<&str>,
    arguments: &Value,
) -> io::Result<Value> {
    let mut meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    if let Some(key) = key {
        meta[mcp::KEY] = key.into();
    }
    let call = json!({
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": { "name": "transfer", "arguments": arguments, "_meta": meta },
    });
    let headers = [
        ("authorization", format!("Bearer {client}")),
        ("mcp-protocol-version", "2026-07-28".into()),
        ("mcp-method", "tools/call".into()),
        ("mcp-name", "transfer".into()),
    ];
    let reply = post(to, "/mcp", &headers, &call)?;
    Ok(serde_json::from_str(&reply.body)?)
}
