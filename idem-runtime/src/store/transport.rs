//! Whether traffic to a server may be read or changed.

use std::net::IpAddr;

/// Whether a connection to this host stays on the machine. Other names count as other machines, whatever they resolve
/// to, because a name that resolves to this machine today may be moved.
pub(crate) fn is_local(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    if host.starts_with('/') {
        // A directory of socket files.
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => address.to_canonical().is_loopback(),
        Ok(address) => address.is_loopback(),
        Err(_) => {
            let host = host.trim_end_matches('.').to_ascii_lowercase();
            host == "localhost" || host.ends_with(".localhost")
        }
    }
}

/// The warning about a connection that may lack encryption. `instead` is the remedy.
pub(crate) fn warning(server: &str, why: &str, instead: &str) -> String {
    format!(
        "{server}: {why} to a host that is not this machine: on the way, records can be read and answers planted, and \
         the password be read; {instead}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_local_by_its_address_or_as_localhost() {
        for host in [
            "localhost",
            "LOCALHOST.",
            "redis.localhost",
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            "/var/run/postgresql",
        ] {
            assert!(is_local(host), "{host}");
        }
        for host in [
            "redis",
            "localhost.example.com",
            "notlocalhost",
            "10.0.0.1",
            "0.0.0.0",
            "128.0.0.1",
            "2001:db8::1",
            "[2001:db8::1]",
            "::ffff:10.0.0.1",
            "127.0.0.1.example.com",
            "",
        ] {
            assert!(!is_local(host), "{host}");
        }
    }
}
