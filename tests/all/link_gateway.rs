//! A gateway's end of bundle links, for testing game processes: it speaks the format and decides
//! nothing.

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use ringgate_core::limits::BUNDLE_BYTES_MAX;
use ringgate_link::bundle::{
    Opened, OpenedPlain, SessionId, ToGateway, USER_DATA_BYTES, VERSION_MAX, Welcome, Writer,
};
use socket2::{Domain, SockAddr, Socket, Type};

/// Longer than any step of a test takes on a busy machine; only a test that fails waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The listening sockets of a gateway with so many workers.
pub(crate) struct Gateway {
    listeners: Vec<Socket>,
    incarnation: u64,
}

impl Gateway {
    pub(crate) fn start(run_dir: &Path, workers: usize, incarnation: u64) -> Self {
        let listeners = (0..workers)
            .map(|worker| listen(&run_dir.join(format!("worker-{worker}.sock"))))
            .collect();
        Self { listeners, incarnation }
    }

    /// Waits for a game process on the worker's socket.
    pub(crate) fn accept(&self, worker: usize) -> GatewayLink {
        GatewayLink::accept(&self.listeners[worker], worker as u16)
    }

    /// Accepts, takes the hello and welcomes in the highest version that is offered.
    pub(crate) fn accept_and_welcome(&self, worker: usize) -> GatewayLink {
        let link = self.accept(worker);
        let hello = link.receive().expect("hello");
        let Some(Ok(ToGateway::Hello(hello))) = ToGateway::read(&hello).next() else {
            panic!("no hello: {hello:?}")
        };
        let version = hello.common_version().expect("a version that we speak");
        link.send(|writer| assert!(writer.welcome(&Welcome { version, ..self.welcome(worker) })));
        link
    }

    pub(crate) fn welcome(&self, worker: usize) -> Welcome {
        Welcome {
            version: VERSION_MAX,
            worker: worker as u16,
            workers: self.listeners.len() as u16,
            incarnation: self.incarnation,
        }
    }
}

/// A listening socket that keeps messages apart.
pub(crate) fn listen(path: &Path) -> Socket {
    let _ = std::fs::remove_file(path);
    let listener = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("socket");
    listener.bind(&SockAddr::unix(path).expect("short path")).expect("bind");
    listener.listen(16).expect("listen");
    listener.set_read_timeout(Some(PATIENCE)).expect("timeout");
    listener
}

/// The gateway's end of one link.
pub(crate) struct GatewayLink {
    socket: Socket,
    worker: u16,
}

impl GatewayLink {
    /// Waits for a game process.
    pub(crate) fn accept(listener: &Socket, worker: u16) -> Self {
        let (socket, _) = listener.accept().expect("a game process connects");
        socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Self { socket, worker }
    }

    /// A session of this link's worker.
    pub(crate) fn session(&self, serial: u64) -> SessionId {
        SessionId::new(self.worker.into(), serial)
    }

    /// Waits for one datagram; `None` at the link's end.
    pub(crate) fn receive(&self) -> Option<Vec<u8>> {
        let mut bundle = vec![0; BUNDLE_BYTES_MAX + 1];
        let len = match (&self.socket).read(&mut bundle) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("the game process said nothing: {error}"),
        };
        bundle.truncate(len);
        (len > 0).then_some(bundle)
    }

    /// Sends one datagram.
    pub(crate) fn send(&self, fill: impl FnOnce(&mut Writer<'_>)) {
        let mut buf = vec![0; BUNDLE_BYTES_MAX];
        let mut writer = Writer::new(&mut buf);
        fill(&mut writer);
        self.send_bytes(writer.bytes());
    }

    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        assert_eq!(self.socket.send(bytes).expect("the game process reads"), bytes.len());
    }
}

/// A player whose every field can be told from the others.
pub(crate) fn opened(session: SessionId, user_data: &[u8; USER_DATA_BYTES]) -> Opened<'_> {
    Opened {
        ticket: None,
        session,
        client_id: 0x1122_3344_5566_7788,
        address: "203.0.113.9:40001".parse().expect("literal"),
        slot: 5,
        slots_max: 64,
        delivers: false,
        user_data,
        listener: "eu-west",
    }
}

/// Slots count from 1 here: 0 says that the session is half open and has none.
pub(crate) fn opened_plain(session: SessionId, slot: u32) -> OpenedPlain<'static> {
    let address = ([192, 0, 2, 7], 4711).into();
    OpenedPlain { session, address, slot: slot.checked_sub(1), slots_max: 64, listener: "any" }
}
