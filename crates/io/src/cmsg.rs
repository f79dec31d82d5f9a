//! What control messages say: what the kernel tells beside a datagram, and what we ask of it beside
//! one. The layouts are compared with libc's in the tests. Messages nobody asked for are passed
//! over.

use std::net::IpAddr;

use super::sockaddr::Family;
use ringgate_batch::LocalIp;
use ringgate_os::control::{self, messages};

/// What the kernel said beside a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// The address it was sent to.
    pub(super) local: LocalIp,
    /// When it was received, in nanoseconds of the real-time clock; 0 where nothing was said.
    pub(super) kernel_ns: u64,
    /// How many datagrams the socket had dropped when this one was queued. The kernel keeps silent
    /// while that is none.
    pub(super) drops: Option<u32>,
}

impl Received {
    /// Nothing was said.
    pub(super) const NOTHING: Self =
        Self { local: LocalIp::UNSPECIFIED, kernel_ns: 0, drops: None };

    /// Reads the control data of one received datagram.
    #[inline]
    pub(super) fn decode(control: &[u8]) -> Self {
        let mut received = Self::NOTHING;
        for (level, kind, data) in messages(control) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => received.read_v4(data),
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => received.read_v6(data),
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => received.read_time(data),
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    received.drops = data.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
                }
                _ => {}
            }
        }
        received
    }

    /// `in_pktinfo`: interface, the local address of the match, the address in the header. The
    /// second is the one an answer may come from even when the datagram was sent to a broadcast
    /// address.
    fn read_v4(&mut self, data: &[u8]) {
        if let Some(ip) = data.get(4..8).and_then(<[u8]>::first_chunk) {
            self.local = LocalIp::v4(*ip, 0);
        }
    }

    /// `in6_pktinfo`: address, interface. The interface is kept for link-local addresses only;
    /// answering any other through the interface that the datagram came in on would overrule the
    /// host's routes.
    fn read_v6(&mut self, data: &[u8]) {
        let Some((ip, rest)) = data.split_first_chunk::<16>() else { return };
        let Some(interface) = rest.first_chunk() else { return };
        self.local = LocalIp::v6(*ip, 0);
        if is_link_local(ip) {
            self.local.interface = u32::from_ne_bytes(*interface);
        }
    }

    fn read_time(&mut self, data: &[u8]) {
        let Some((seconds, rest)) = data.split_first_chunk() else { return };
        let Some(nanos) = rest.first_chunk() else { return };
        let seconds = u64::from_ne_bytes(*seconds);
        self.kernel_ns =
            seconds.wrapping_mul(1_000_000_000).wrapping_add(u64::from_ne_bytes(*nanos));
    }
}

/// What an error queue says about a datagram that we had sent (`sock_extended_err`): the errno, or
/// `None` where the control data holds no error.
pub(super) fn decode_error(control: &[u8]) -> Option<i32> {
    messages(control)
        .find(|(level, kind, _)| {
            matches!(
                (*level, *kind),
                (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
            )
        })
        .and_then(|(_, _, data)| data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes)))
}

/// What we tell the kernel beside a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Control {
    bytes: [u8; SEND_CONTROL_BYTES],
    len: u8,
}

impl Control {
    /// Names the address to send from, and asks the kernel to cut the message into datagrams of so
    /// many bytes (UDP GSO, Linux 4.18). `None` where there is nothing to say.
    #[inline]
    pub(super) fn new(
        source: &LocalIp,
        segment_bytes: Option<u16>,
        family: Family,
    ) -> Option<Self> {
        if source.is_unspecified() && segment_bytes.is_none() {
            return None;
        }
        let mut control = Self { bytes: [0; SEND_CONTROL_BYTES], len: 0 };
        if !source.is_unspecified() {
            control.push_source(source, family);
        }
        if let Some(segment_bytes) = segment_bytes {
            control.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment_bytes.to_ne_bytes());
        }
        Some(control)
    }

    fn push_source(&mut self, source: &LocalIp, family: Family) {
        match (family, source.ip()) {
            (Family::V4, IpAddr::V4(ip)) => {
                let mut info = [0; 12];
                info[..4].copy_from_slice(&source.interface.to_ne_bytes());
                info[4..8].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            _ => {
                let mut info = [0; 20];
                info[..16].copy_from_slice(source.ip_bytes());
                info[16..].copy_from_slice(&source.interface.to_ne_bytes());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
        }
    }

    /// The bytes to hand to the kernel.
    #[inline]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    #[inline]
    fn push(&mut self, level: i32, kind: i32, data: &[u8]) {
        self.len +=
            control::write(&mut self.bytes[usize::from(self.len)..], level, kind, data) as u8;
    }
}

fn is_link_local(ip: &[u8; 16]) -> bool {
    ip[0] == 0xfe && ip[1] & 0xc0 == 0x80
}

/// An address and a segment size.
const SEND_CONTROL_BYTES: usize = control::bytes_of(20) + control::bytes_of(2);

const _: () = assert!(size_of::<libc::timespec>() == 16);

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use proptest::prelude::*;

    use super::*;
    use ringgate_os::message::CONTROL_BYTES;

    fn control_of(parts: &[(i32, i32, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (level, kind, data) in parts {
            let start = bytes.len();
            bytes.resize(start + control::bytes_of(data.len()), 0);
            control::write(&mut bytes[start..], *level, *kind, data);
        }
        bytes
    }

    #[test]
    fn offsets_are_those_of_libc() {
        assert_eq!(offset_of!(libc::in_pktinfo, ipi_spec_dst), 4);
        assert_eq!((size_of::<libc::in_pktinfo>(), size_of::<libc::in6_pktinfo>()), (12, 20));
        assert_eq!(offset_of!(libc::in6_pktinfo, ipi6_ifindex), 16);
        assert_eq!(offset_of!(libc::sock_extended_err, ee_errno), 0);
    }

    #[test]
    fn a_receive_is_told_address_time_and_drops() {
        let mut time = 7_u64.to_ne_bytes().to_vec();
        time.extend_from_slice(&9_u64.to_ne_bytes());
        let control = control_of(&[
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &42_u32.to_ne_bytes()),
            (libc::SOL_SOCKET, 12345, b"who asked"),
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &time),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, &[1, 0, 0, 0, 127, 0, 0, 2, 127, 0, 0, 255]),
        ]);
        let received = Received::decode(&control);
        assert_eq!(received.local, LocalIp::v4([127, 0, 0, 2], 0));
        assert_eq!((received.kernel_ns, received.drops), (7_000_000_009, Some(42)));
        assert_eq!(Received::decode(&[]), Received::NOTHING);
    }

    #[test]
    fn a_receive_has_room_for_all_it_may_be_told() {
        let longest = control_of(&[
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[0; 16]),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &[0; 4]),
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &[0; 20]),
        ]);
        assert_eq!(longest.len(), CONTROL_BYTES);
    }

    #[test]
    fn only_link_local_addresses_keep_their_interface() {
        for (first, interface) in [(0xfe80_u16, 3), (0xfebf, 3), (0xfec0, 0), (0x2001, 0)] {
            let mut info = [0; 20];
            info[..2].copy_from_slice(&first.to_be_bytes());
            info[16..].copy_from_slice(&3_u32.to_ne_bytes());
            let control = control_of(&[(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info)]);
            assert_eq!(Received::decode(&control).local.interface, interface, "{first:x}");
        }
    }

    #[test]
    fn an_error_is_found_among_other_messages() {
        let error = [libc::ECONNREFUSED.to_ne_bytes(), [2, 3, 3, 0], [0; 4], [0; 4]].concat();
        let control = control_of(&[
            (libc::IPPROTO_IP, libc::IP_TTL, &[0; 4]),
            (libc::IPPROTO_IP, libc::IP_RECVERR, &error),
        ]);
        assert_eq!(decode_error(&control), Some(libc::ECONNREFUSED));
        assert_eq!(decode_error(&control[..24]), None);
    }

    #[test]
    fn what_we_say_is_what_we_would_read() {
        for source in [
            LocalIp::v4([127, 3, 2, 1], 0),
            LocalIp::v6([0xfe, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], 5),
        ] {
            for family in [Family::V4, Family::V6] {
                let control = Control::new(&source, Some(1200), family).expect("two things to say");
                assert_eq!(Received::decode(control.as_bytes()).local, source);
                let (level, kind, data) =
                    messages(control.as_bytes()).last().expect("two messages");
                assert_eq!(
                    (level, kind, data),
                    (libc::SOL_UDP, libc::UDP_SEGMENT, &1200_u16.to_ne_bytes()[..])
                );
            }
        }
        assert!(Control::new(&LocalIp::UNSPECIFIED, None, Family::V4).is_none());
    }

    proptest! {
        #[test]
        fn bytes_from_anywhere_end_and_stay_in_bounds(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Received::decode(&bytes);
            let _ = decode_error(&bytes);
        }

        #[test]
        fn a_wrong_length_ends_the_chain(len in 0..control::HEADER_BYTES) {
            let mut control = control_of(&[(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &[1; 4])]);
            control[..8].copy_from_slice(&len.to_ne_bytes());
            prop_assert_eq!(Received::decode(&control), Received::NOTHING);
        }
    }
}
