//! What all that is handed to another process has in common here: addresses, and descriptors that
//! are not believed to be what they are said to be.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use ringgate_core::carry::{Broken, Carry, Reader, Writer};
use socket2::{Socket, Type};

/// Writes an address.
pub(crate) fn write_address(address: SocketAddr, out: &mut Writer<'_>) {
    address.to_string().write(out);
}

/// Reads it.
pub(crate) fn read_address(from: &mut Reader<'_>) -> Result<SocketAddr, Broken> {
    String::read(from)?.parse().map_err(|_| Broken::Invalid("address"))
}

/// A socket of that type which does not wait, if that is what it is.
pub fn adopt(fd: OwnedFd, wanted: Type) -> Result<Socket, Broken> {
    let socket = Socket::from(fd);
    let is_such = socket.r#type().is_ok_and(|found| found == wanted);
    let is_ready = is_such && socket.set_nonblocking(true).is_ok();
    is_ready.then_some(socket).ok_or(Broken::Invalid("socket"))
}
