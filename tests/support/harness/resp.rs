//! A small RESP2 client, independent of `redis-cli` and the client under test.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::HANG_LIMIT;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status such as `OK`.
    Simple(String),
    /// An error, with its code in front: `NOAUTH Authentication required.`
    Error(String),
    Int(i64),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    Nil,
    /// Replies in a row.
    Array(Vec<Self>),
}

impl Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        let head = match self {
            Self::Simple(text) => format!("+{text}"),
            Self::Error(text) => format!("-{text}"),
            Self::Int(number) => format!(":{number}"),
            Self::Bulk(bytes) => format!("${}", bytes.len()),
            Self::Nil => "$-1".to_owned(),
            Self::Array(replies) => format!("*{}", replies.len()),
        };
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(b"\r\n");
        match self {
            Self::Bulk(bytes) => {
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(replies) => replies.iter().for_each(|reply| reply.encode(out)),
            _ => {}
        }
    }

    /// The number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            Self::Simple(text) => Some(text.as_bytes()),
            _ => None,
        }
    }

    pub fn as_error(&self) -> Option<&str> {
        match self {
            Self::Error(text) => Some(text),
            _ => None,
        }
    }
}

/// The text of a reply: strings, decimal numbers, `(nil)`, `(error) …`, an array's elements in lines.
impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => f.write_str(text),
            Self::Error(text) => write!(f, "(error) {text}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bulk(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Nil => f.write_str("(nil)"),
            Self::Array(replies) => {
                for (index, reply) in replies.iter().enumerate() {
                    let separator = if index == 0 { "" } else { "\n" };
                    write!(f, "{separator}{reply}")?;
                }
                Ok(())
            }
        }
    }
}

/// A blocking connection that speaks RESP2.
#[derive(Debug)]
pub struct RespConn {
    stream: BufReader<TcpStream>,
}

impl RespConn {
    /// Connects without authenticating.
    pub fn open(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, HANG_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(HANG_LIMIT))?;
        stream.set_write_timeout(Some(HANG_LIMIT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// A connection that a client has opened: [`read`](Self::read) reads its commands.
    pub fn accepted(stream: TcpStream) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.stream.get_mut().write_all(&bytes)
    }

    /// Sends a command and reads its reply. An error of the server is a [`Reply::Error`].
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.read()
    }

    /// Sends a command without waiting for its reply.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args.iter().map(AsRef::as_ref) {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)
    }

    pub fn read(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(rest.parse().map_err(io::Error::other)?),
            "$" => match length(rest)? {
                None => Reply::Nil,
                Some(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.stream.read_exact(&mut bytes)?;
                    bytes.truncate(length);
                    Reply::Bulk(bytes)
                }
            },
            "*" => match length(rest)? {
                None => Reply::Nil,
                Some(length) => {
                    let replies = (0..length).map(|_| self.read());
                    Reply::Array(replies.collect::<io::Result<_>>()?)
                }
            },
            _ => return Err(io::Error::other(format!("not a RESP2 reply: {line:?}"))),
        })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.stream.read_until(b'\n', &mut bytes)?;
        match bytes.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A length, or `None` for the -1 of a missing value.
fn length(text: &str) -> io::Result<Option<usize>> {
    if text == "-1" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(io::Error::other)
}
