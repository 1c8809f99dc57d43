//! Failures of commands, and the classification of Redis errors.

use redis::{ErrorKind, RedisError};

use super::super::{Reach, StoreError, StoreErrorKind};

/// Reason for which a command has no usable reply.
pub(super) enum Failure {
    /// No connection; the command was not sent.
    Connect(StoreError),
    /// An error of the server, or no reply in time.
    Reply(RedisError),
    /// The command was executed, and fewer replicas than required have its write.
    Unreplicated { replicas: u32, wanted: u32 },
}

impl Failure {
    /// Whether the server closed the connection without an error.
    pub(super) fn hangs_up(&self) -> bool {
        matches!(self, Self::Reply(error) if hangs_up(error))
    }

    pub(super) fn store_error(self, what: &str) -> StoreError {
        match self {
            Self::Connect(error) => error,
            Self::Reply(error) => store_error(what, error),
            Self::Unreplicated { replicas, wanted } => StoreError::new(
                StoreErrorKind::Unavailable,
                format!(
                    "{what}: {replicas} of {wanted} replicas have it, so that a failover could \
                     forget it; look at the replicas and their links \
                     (`durability` is `replicated({wanted})`)"
                ),
            )
            .answered(),
        }
    }
}

/// Whether the server does not know the script.
pub(super) fn is_unknown_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Whether the key has a list, a hash, …. Redis 7 keeps the code; Redis 6 wraps it into its message.
pub(super) fn is_wrong_type(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
        || error
            .detail()
            .is_some_and(|detail| detail.contains("WRONGTYPE"))
}

/// Whether the connection is no longer usable.
pub(super) fn breaks_connection(error: &RedisError) -> bool {
    (is_lost(error) && !error.is_timeout()) || has_no_room(error)
}

/// Whether the connection has ended, or does not reply.
pub(super) fn is_lost(error: &RedisError) -> bool {
    error.is_connection_dropped() || error.is_io_error()
}

/// Whether the server is a replica: after a failover, another server is the primary.
pub(crate) fn is_replica_error(error: &RedisError) -> bool {
    matches!(code(error), Some("READONLY" | "MASTERDOWN")) || became_a_replica(error)
}

/// Whether the server wrote, and became a replica before or during `WAIT`.
fn became_a_replica(error: &RedisError) -> bool {
    code(error) == Some("UNBLOCKED") || says(error, "WAIT cannot be used with replica")
}

/// Whether the server closed the connection without an error.
fn hangs_up(error: &RedisError) -> bool {
    error.is_connection_dropped() && about_tls(error).is_none() && !has_no_room(error)
}

/// Whether the connection is beyond `maxclients`. The error arrives as the reply to the first command.
pub(crate) fn has_no_room(error: &RedisError) -> bool {
    // A node of a cluster says "max number of clients + cluster connections reached".
    says(error, "max number of clients")
}

/// Whether a proxy has lost the server and replies in its place: Envoy, and Twemproxy with the system's error.
fn is_lost_by_proxy(error: &RedisError) -> bool {
    match (error.code(), error.detail()) {
        (Some("no"), Some("upstream host")) | (Some("upstream"), Some("failure")) => true,
        (Some("ERR"), Some(said)) => matches!(
            said,
            "Broken pipe"
                | "Connection refused"
                | "Connection reset by peer"
                | "Connection timed out"
                | "Network is unreachable"
                | "No route to host"
        ),
        _ => false,
    }
}

fn says(error: &RedisError, words: &str) -> bool {
    error.detail().is_some_and(|detail| detail.contains(words))
}

/// The error's code. On Redis 6, a script's error carries the code of its cause only in its text.
fn code(error: &RedisError) -> Option<&str> {
    match error.code() {
        Some("ERR") | None => {
            let hidden = HIDDEN.into_iter().find(|code| says(error, code));
            hidden.map(str::trim_end).or(error.code())
        }
        code => code,
    }
}

/// Codes of refused commands in a script, missing rights apart.
const HIDDEN: [&str; 5] = [
    "OOM ",
    "READONLY ",
    "MISCONF ",
    "NOREPLICAS ",
    "MASTERDOWN ",
];

/// The advice for a TLS library's error about certificates.
fn about_tls(error: &RedisError) -> Option<&'static str> {
    if !error.is_io_error() {
        return None;
    }
    let said = error.to_string();
    let is = |words: &str| said.contains(words);
    if is("invalid peer certificate") {
        Some(if is("UnknownIssuer") {
            "the certificate of Redis comes from an authority that is not trusted; give its \
             certificate to `RedisStoreBuilder::root_certificate`, and be sure that this is your \
             server"
        } else if is("not valid for") || is("NotValidForName") {
            "the certificate of Redis is for another name than the host of the URL"
        } else if is("xpired") || is("not valid yet") || is("NotValidYet") {
            "the certificate of Redis has expired, or is not valid yet; look at the clock, and \
             renew it"
        } else {
            "the certificate of Redis is not valid"
        })
    } else if is("received fatal alert") {
        Some(if is("CertificateRequired") {
            "Redis asks for a certificate of the client; give it to \
             `RedisStoreBuilder::client_certificate`"
        } else if is("nknownCA") || is("ertificate") {
            "Redis does not accept the certificate of `RedisStoreBuilder::client_certificate`; see \
             its `tls-ca-cert-file`"
        } else {
            "Redis refuses the TLS connection; look at its log, and at its `tls-protocols`"
        })
    } else if is("corrupt message") || is("InvalidContentType") {
        Some("the port of Redis does not speak TLS; write `redis://`, or take its TLS port")
    } else {
        None
    }
}

/// Whether the server requires, or does not accept, user or password.
pub(crate) fn is_unknown_user(error: &RedisError) -> bool {
    matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
        || error.kind() == ErrorKind::AuthenticationFailed
}

fn is_unknown_host(error: &RedisError) -> bool {
    error.to_string().contains("failed to lookup address")
}

/// The error of a failed connection attempt to this address. `known`: an earlier attempt succeeded.
pub(super) fn connect_error(at: &str, error: RedisError, known: bool) -> StoreError {
    let what = format!("connecting to Redis at {at}");
    if let Some(said) = about_tls(&error) {
        // A server that was accepted before may be about to get a new certificate.
        let kind = if known {
            StoreErrorKind::Unavailable
        } else {
            StoreErrorKind::Refused
        };
        return caused(kind, format!("{what}: {said}"), error).answered();
    }
    if known && is_unknown_user(&error) {
        // The password is being changed; or the server has no room, which the client library reports alike. Either is
        // transient, so that a finished answer is stored later.
        let message = format!("{what}: {NO_MORE}");
        return caused(StoreErrorKind::Unavailable, message, error).answered();
    }
    let hangs_up = hangs_up(&error) && !error.is_connection_refusal();
    let hint = (!known && hangs_up).then_some(HUNG_UP);
    let error = store_error(&what, error);
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// The error for the engine. `what` names the attempted operation, as in "a claim".
pub(super) fn store_error(what: &str, error: RedisError) -> StoreError {
    use StoreErrorKind::{Full, Refused, Unavailable};
    let (kind, advice) = match code(&error) {
        _ if has_no_room(&error) => (Unavailable, NO_ROOM),
        _ if error
            .to_string()
            .contains("SELECT is not allowed in cluster mode") =>
        {
            (
                Refused,
                "a cluster has one database only; leave the number out of the URL",
            )
        }
        // The client library has a message of its own for it.
        _ if error.to_string().contains("refused to switch database") => (
            Refused,
            "Redis does not let this user have the database of the URL; there are 16 unless it is \
             told otherwise (`databases`), and choosing one takes the right `+select`",
        ),
        Some("OOM") => (Full, OUT_OF_MEMORY),
        Some("READONLY") => (Unavailable, REPLICA),
        _ if became_a_replica(&error) => (Unavailable, REPLICA),
        Some("LOADING") => (
            Unavailable,
            "Redis is loading its data; it will be ready soon",
        ),
        Some("MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN") => (
            Unavailable,
            "Redis has no primary for this key right now; wait for the failover to finish",
        ),
        Some("NOREPLICAS") => (
            Unavailable,
            "Redis has too few replicas to accept writes (`min-replicas-to-write`)",
        ),
        Some("MISCONF") => (
            Unavailable,
            "Redis cannot write its snapshot and refuses writes; look at its disk and its log",
        ),
        Some("BUSY") => (Unavailable, "Redis is busy with somebody's long script"),
        Some("NOAUTH") => (Refused, NO_PASSWORD),
        Some("DENIED") => (Refused, PROTECTED),
        _ if is_unknown_user(&error) && error.code().is_none() => (Refused, WHO_OR_NO_ROOM),
        _ if is_unknown_user(&error) => (Refused, WHO),
        Some("NOPERM") => (Refused, RIGHTS),
        // In a script it has no code of its own.
        _ if says(&error, "executing the script") || says(&error, "NOPERM") => (Refused, RIGHTS),
        _ if is_lost_by_proxy(&error) => (Unavailable, "a proxy has lost its connection to Redis"),
        _ => about_connection(&error),
    };
    let reach = reach(&error);
    let code = code(&error).map_or(String::new(), |code| format!(" [{code}]"));
    reached(
        reach,
        caused(kind, format!("{what}: {advice}{code}"), error),
    )
}

/// The kind and advice of failed connections and unnamed errors.
fn about_connection(error: &RedisError) -> (StoreErrorKind, &'static str) {
    use StoreErrorKind::{Protocol, Unavailable};
    if let Some(said) = about_tls(error) {
        (Unavailable, said)
    } else if error.is_timeout() {
        (Unavailable, "Redis did not answer in time")
    } else if error.is_connection_refusal() {
        (
            Unavailable,
            "nothing listens at this address; start the server, or compare it with its `bind` and `port`",
        )
    } else if is_unknown_host(error) {
        (
            Unavailable,
            "the name of the host is not known here; compare the URL with DNS",
        )
    } else if is_lost(error) {
        (Unavailable, "the connection to Redis is lost")
    } else {
        (Protocol, "Redis refused")
    }
}

/// How far a command got. A server that starts, or has no primary yet, may still return any reply.
fn reach(error: &RedisError) -> Reach {
    let waits = ["LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"];
    if has_no_room(error) || about_tls(error).is_some() {
        Reach::Answered
    } else if lacks_something_here(error) {
        Reach::Here
    } else if error.is_connection_refusal() || is_unknown_host(error) {
        Reach::Unreachable
    } else if is_lost_by_proxy(error) {
        Reach::Silent
    } else {
        match code(error) {
            Some(code) if !waits.contains(&code) => Reach::Answered,
            _ => Reach::Silent,
        }
    }
}

fn reached(reach: Reach, error: StoreError) -> StoreError {
    match reach {
        Reach::Answered => error.answered(),
        Reach::Here => error.here(),
        Reach::Unreachable => error.unreachable(),
        Reach::Silent => error,
    }
}

/// Whether this process or its machine lacks a resource for a connection: memory, files, ports.
fn lacks_something_here(error: &RedisError) -> bool {
    const LACKS: [i32; 4] = [12, 23, 24, 99];
    let said = error.to_string();
    error.is_io_error()
        && LACKS
            .iter()
            .any(|code| said.contains(&format!("(os error {code})")))
}

/// The error with its cause, unless the cause quotes a command's arguments.
///
/// A server that does not know a command quotes them: the password of `AUTH`, for one.
fn caused(kind: StoreErrorKind, message: String, cause: RedisError) -> StoreError {
    let error = StoreError::new(kind, message);
    if cause.to_string().contains("with args beginning with") {
        return error;
    }
    error.because(cause)
}

const REPLICA: &str =
    "this server is a replica; connect to the primary, or wait for the failover to finish";
const OUT_OF_MEMORY: &str =
    "Redis is out of memory (`maxmemory`); finished answers are still replayed";
const WHO: &str = "Redis does not accept the user or password of the URL, or of the provider";
const NO_PASSWORD: &str = "Redis requires a password, and the URL has none; write `redis://:password@host:port`, or `user:password@`";
const PROTECTED: &str = "Redis is in protected mode and accepts only connections from its own machine; give its user a \
                         password, or restrict its `bind` and set `protected-mode no`";
/// The client library does not repeat the reply to `AUTH`.
const WHO_OR_NO_ROOM: &str = "Redis does not accept the user or password of the URL, or of the \
                              provider, or takes no more connections (`maxclients`)";
/// The hint for a server that silently closes the first connection.
pub(super) const HUNG_UP: &str = "if this port speaks TLS, write `rediss://`; a server that takes no more \
                                  connections (`maxclients`) does this as well, and so does a proxy that lacks a \
                                  command of idem's (twemproxy)";
const NO_MORE: &str = "Redis does not accept the user or password of the URL, or of the provider, any more, or takes no more connections (`maxclients`); look at `CLIENT LIST`";
pub(crate) const NO_ROOM: &str = "Redis takes no more connections (`maxclients`); raise the limit, or \
                                  close some of the clients in `CLIENT LIST`";
const RIGHTS: &str =
    "the Redis user lacks a right; see the ACL line in the documentation of `RedisStore`";

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    fn error(line: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        reply.extract_error().unwrap_err()
    }

    fn said(line: &str) -> StoreError {
        store_error("a completion", error(line))
    }

    #[test]
    fn a_code_inside_the_error_of_a_script_is_found() {
        for (line, kind) in [
            ("READONLY You can't write", StoreErrorKind::Unavailable),
            ("MISCONF Redis is configured", StoreErrorKind::Unavailable),
            ("NOREPLICAS Not enough good", StoreErrorKind::Unavailable),
            ("MASTERDOWN Link with MASTER", StoreErrorKind::Unavailable),
            ("OOM command not allowed", StoreErrorKind::Full),
        ] {
            let open = said(line);
            let hidden = said(&format!(
                "ERR Error running script (call to f_0): @user_script:63: @user_script: 63: -{line}"
            ));
            assert_eq!((open.kind(), hidden.kind()), (kind, kind), "{hidden}");
            assert_eq!(open.to_string(), hidden.to_string());
        }
        assert_eq!(said("ERR something else").kind(), StoreErrorKind::Protocol);
    }

    /// Neither an effect of a flood nor a refusal is an outage.
    #[test]
    fn what_the_server_says_itself_is_no_outage() {
        for line in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "READONLY You can't write against a read only replica.",
            "MISCONF Redis is configured to save RDB snapshots",
            "NOREPLICAS Not enough good replicas to write.",
            "NOPERM this user has no permissions to run the 'set' command",
            "NOAUTH Authentication required.",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "BUSY Redis is busy running a script.",
            "DENIED Redis is running in protected mode because protected mode is enabled and no \
             password is set for the default user. In this mode connections are only accepted",
            "ERR max number of clients reached",
            "ERR something else",
        ] {
            assert_eq!(said(line).reach(), Reach::Answered, "{line}");
        }
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down",
            "CLUSTERDOWN The cluster is down",
        ] {
            assert_eq!(said(line).reach(), Reach::Silent, "{line}");
        }
        // Envoy, and Twemproxy.
        for line in [
            "no upstream host",
            "upstream failure",
            "ERR Connection refused",
            "ERR Connection reset by peer",
            "ERR Connection timed out",
        ] {
            let said = (said(line).kind(), said(line).reach());
            assert_eq!(said, (StoreErrorKind::Unavailable, Reach::Silent), "{line}");
        }
        assert_eq!(said("DENIED Redis").kind(), StoreErrorKind::Refused);
        let io = |kind| store_error("a claim", std::io::Error::from(kind).into()).reach();
        assert_eq!(
            io(std::io::ErrorKind::ConnectionRefused),
            Reach::Unreachable
        );
        assert_eq!(io(std::io::ErrorKind::ConnectionReset), Reach::Silent);
        assert_eq!(io(std::io::ErrorKind::TimedOut), Reach::Silent);
        let files = std::io::Error::from_raw_os_error(24);
        assert_eq!(
            connect_error("localhost:6379", files.into(), true).reach(),
            Reach::Here
        );
    }

    #[test]
    fn a_server_that_became_a_replica_during_wait_is_recognized() {
        for line in [
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0",
            "UNBLOCKED force unblock from blocking operation, instance state changed",
        ] {
            assert!(is_replica_error(&error(line)), "{line}");
            assert_eq!(said(line).kind(), StoreErrorKind::Unavailable, "{line}");
        }
    }

    #[test]
    fn only_a_first_connection_that_is_hung_up_has_the_hint() {
        use std::io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
        for (kind, known, hinted) in [
            (ConnectionReset, false, true),
            (ConnectionReset, true, false),
            (ConnectionRefused, false, false),
            (TimedOut, false, false),
            (TimedOut, true, false),
        ] {
            let error = std::io::Error::from(kind).into();
            let said = connect_error("localhost:6379", error, known).to_string();
            assert_eq!(said.contains(HUNG_UP), hinted, "{kind:?}, {known}: {said}");
        }
    }

    #[test]
    fn arguments_quoted_by_the_server_are_not_repeated() {
        let error =
            said("ERR unknown command `AUTH`, with args beginning with: `user`, `secret`, ");
        assert!(error.source().is_none());
        assert!(!format!("{error} {error:?}").contains("secret"));
        assert!(said("ERR another").source().is_some());
    }

    /// TLS errors are distinguished by the messages of another library.
    #[cfg(feature = "redis-tls")]
    #[test]
    fn certificate_errors_are_distinguished() {
        use rustls::AlertDescription as Alert;
        use rustls::CertificateError::{
            Expired, NotValidForName, NotValidYet, Revoked, UnknownIssuer,
        };
        use rustls::Error::{self, AlertReceived, InvalidCertificate};
        let other_bytes = Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        for (error, part) in [
            (InvalidCertificate(UnknownIssuer), "not trusted"),
            (InvalidCertificate(Expired), "has expired"),
            (InvalidCertificate(NotValidYet), "has expired"),
            (InvalidCertificate(NotValidForName), "another name"),
            (InvalidCertificate(Revoked), "is not valid"),
            (AlertReceived(Alert::CertificateRequired), "asks for a"),
            (AlertReceived(Alert::UnknownCA), "does not accept"),
            (AlertReceived(Alert::BadCertificate), "does not accept"),
            (AlertReceived(Alert::ProtocolVersion), "`tls-protocols`"),
            (other_bytes, "does not speak TLS"),
        ] {
            let io = std::io::Error::new(std::io::ErrorKind::InvalidData, error.clone());
            let said = connect_error("localhost:6379", io.into(), false);
            assert_eq!(said.kind(), StoreErrorKind::Refused, "{said}");
            assert!(said.to_string().contains(part), "{error:?}: {said}");
            let io = std::io::Error::new(std::io::ErrorKind::InvalidData, error);
            assert_eq!(
                connect_error("localhost:6379", io.into(), true).kind(),
                StoreErrorKind::Unavailable
            );
        }
    }
}
