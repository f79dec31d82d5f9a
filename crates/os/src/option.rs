//! Socket options whose value is a number.
#![allow(unsafe_code, reason = "socket options without a wrapper elsewhere")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets one.
pub fn set(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the option value is a live `int`, passed with its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn an_option_is_set_and_one_that_there_is_not_is_an_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_BROADCAST, 1).expect("every socket has it");
        assert!(socket.broadcast().expect("it can be asked"));
        let why = set(socket.as_fd(), libc::SOL_SOCKET, i32::MAX, 1).expect_err("no such option");
        assert_eq!(why.raw_os_error(), Some(libc::ENOPROTOOPT));
    }
}
