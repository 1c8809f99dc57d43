//! Ports for servers that go down and come back.

use std::fs::{self, File, OpenOptions};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{env, io, process};

/// Below the system's range of ports for port 0 and outgoing connections. A port from that range could be taken by any
/// client while its server is down for a restart.
const FIRST: u16 = 15_000;
const COUNT: u16 = 16_000;

/// Offset of a cluster node's bus port, by default.
const BUS: u16 = 10_000;

/// A loopback port that no other harness uses, also of other processes.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// Locked while the port is taken; the system unlocks it when this process dies.
    _lock: File,
}

impl Port {
    /// Takes a port without a listener.
    pub(crate) fn take() -> io::Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        // Processes start at different ports, to collide rarely.
        let start = process::id().wrapping_mul(97);
        for _ in 0..COUNT {
            let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
            let offset = start.wrapping_add(step) % u32::from(COUNT);
            let number = FIRST + u16::try_from(offset).expect("the offset is below COUNT");
            if let Some(port) = Self::take_this(number)? {
                return Ok(port);
            }
        }
        Err(io::Error::other("no free port on loopback"))
    }

    /// Takes a port together with the bus port of a cluster node.
    pub(crate) fn take_with_bus() -> io::Result<(Self, Self)> {
        for _ in 0..COUNT {
            let port = Self::take()?;
            let bus = port.number + BUS;
            if bus < FIRST + COUNT
                && let Some(bus) = Self::take_this(bus)?
            {
                return Ok((port, bus));
            }
        }
        Err(io::Error::other("no free pair of ports on loopback"))
    }

    fn take_this(number: u16) -> io::Result<Option<Self>> {
        let locks = env::temp_dir().join(format!("idem-ports-{}", nix::unistd::getuid()));
        fs::create_dir_all(&locks)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(locks.join(number.to_string()))?;
        let free =
            lock.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok();
        Ok(free.then_some(Self {
            number,
            _lock: lock,
        }))
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}
