//! Addresses for daemons that may be restarted, also under another process id, while other tests run.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

/// A free address that no other test gets, also of a program that runs at the same time. Its port is below the ephemeral range of the
/// system, so that it stays free until a daemon binds it.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    /// Sockets that are named for the ports of this program, and end with it.
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    // Concurrent test programs start at different ports.
    let first = u16::try_from(std::process::id() % 1000).unwrap() * 12;
    for _ in 0..12_000 {
        let port = 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 12_000;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let name = UnixAddr::from_abstract_name(format!("resyncd-test-port-{port}")).unwrap();
        if let Ok(reserved) = UnixListener::bind_addr(&name)
            && TcpListener::bind(address).is_ok()
        {
            RESERVED.lock().unwrap().push(reserved);
            return address;
        }
    }
    panic!("no port is free");
}
