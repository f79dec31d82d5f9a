//! Sends datagrams back, past the kernel's sockets or through one: what AF_XDP gains, and that it
//! works on an interface at all.
//!
//! ```text
//!   echo xdp INTERFACE ADDRESS:PORT     answers on the interface's first queue
//!   echo socket ADDRESS:PORT            answers through a socket
//!   echo ask ADDRESS:PORT BURSTS        asks, 64 datagrams at a time, and says what came back
//! ```
//!
//! `ask` ends the other side with a datagram that says so, and both say how much processor time
//! they have taken.

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use ringgate_os::notify;
use ringgate_xdp::frame::{self, HEADERS_MAX, Leaving, Leg};
use ringgate_xdp::netlink::Asking;
use ringgate_xdp::program::{Ours, Place, Program};
use ringgate_xdp::queue::{Queue, QueueOptions, Received};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let count = match args[..] {
        ["xdp", interface, address] => serve_frames(interface, address.parse()?)?,
        ["socket", address] => serve_socket(address.parse()?)?,
        ["ask", address, bursts] => ask(address.parse()?, bursts.parse()?)?,
        _ => {
            return Err(
                "xdp INTERFACE ADDRESS:PORT | socket ADDRESS:PORT | ask ADDRESS:PORT BURSTS".into(),
            );
        }
    };
    let ns = processor_ns()?;
    println!("{count} datagrams, {} ns of processor time each", ns / count.max(1));
    Ok(())
}

fn serve_frames(interface: &str, address: SocketAddr) -> Result<u64, Box<dyn Error>> {
    // Whoever wants the port finds that it is taken, and the kernel does not say that it is closed.
    let beside = UdpSocket::bind(address)?;
    let link = Asking::open()?.link(interface)?;
    let mac = link.mac.ok_or("no Ethernet interface")?;
    let program = Program::load(mac, link.queues)?;
    let attached = program.attach(link.index, Place::Driver)?;
    let options = QueueOptions {
        interface: link.index,
        queue: 0,
        mode: None,
        receive: 1024,
        send: 1024,
        frame_bytes: 2048,
        notes: None,
    };
    let mut queue = Queue::with_own_memory(&options)?;
    let local = match address {
        SocketAddr::V4(v4) => ringgate_batch::LocalIp::v4(v4.ip().octets(), 0),
        SocketAddr::V6(v6) => ringgate_batch::LocalIp::v6(v6.ip().octets(), 0),
    };
    program.add(&Ours { vlan: 0, local, port: address.port() })?;
    program.give_queue(0, queue.as_fd())?;
    println!("ready: {:?}", queue.mode());
    let mut count = 0;
    loop {
        let mut is_over = false;
        let mut burst = 0;
        while burst < 64
            && let Some(received) = queue.receive()
        {
            burst += 1;
            is_over |= answer(&mut queue, received);
        }
        count += burst;
        queue.top_up();
        queue.kick()?;
        queue.reap();
        if is_over {
            drop(attached);
            println!("{:?}, {} at the socket", queue.statistics()?, at_socket(&beside)?);
            return Ok(count);
        }
        if burst == 0 {
            notify::wait(&mut [notify::awaited(queue.as_fd().as_raw_fd())], WAIT)?;
        }
    }
}

/// Sends what has arrived back to where it came from. Returns whether it is over.
fn answer(queue: &mut Queue, received: Received) -> bool {
    let Received { frame, at, len } = received;
    let bytes = &queue.bytes(&frame)[at as usize..][..len as usize];
    let Ok(arrived) = frame::parse(bytes) else {
        queue.give_back(frame);
        return false;
    };
    let leg =
        Leg { to: arrived.from, from: *bytes.first_chunk().expect("a header"), vlan: arrived.vlan };
    let datagram = bytes[arrived.payload.clone()].to_vec();
    let is_over = datagram == OVER;
    queue.give_back(frame);
    if let Some(mut out) = queue.blank() {
        let (local, port) = (arrived.local, arrived.port);
        let leaving =
            Leaving { leg, local, port, peer: arrived.peer, fragments: None, sum_is_left: false };
        let memory = queue.bytes_mut(&mut out);
        memory[HEADERS_MAX..][..datagram.len()].copy_from_slice(&datagram);
        let headers = frame::write_headers(&mut memory[..HEADERS_MAX], &leaving, &datagram);
        let at = (HEADERS_MAX - headers) as u32;
        if let Err(unsent) = queue.send(out, at, (headers + datagram.len()) as u32) {
            queue.give_back(unsent);
        }
    }
    is_over
}

fn serve_socket(address: SocketAddr) -> Result<u64, Box<dyn Error>> {
    let socket = UdpSocket::bind(address)?;
    println!("ready");
    let mut buffer = [0; 2048];
    let mut count = 0;
    loop {
        let (len, peer) = socket.recv_from(&mut buffer)?;
        socket.send_to(&buffer[..len], peer)?;
        count += 1;
        if &buffer[..len] == OVER {
            return Ok(count);
        }
    }
}

fn ask(address: SocketAddr, bursts: u64) -> Result<u64, Box<dyn Error>> {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let open = |_| {
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(WAIT))?;
        Ok(socket)
    };
    // As many players: what goes to one could leave in one piece.
    let sockets: Vec<_> = (0..64).map(open).collect::<std::io::Result<_>>()?;
    let mut buffer = [0; 2048];
    let mut count = 0;
    for burst in 0..bursts {
        for (number, socket) in (0_u64..).zip(&sockets) {
            let mut datagram = [7; 100];
            datagram[..8].copy_from_slice(&(burst * 64 + number).to_ne_bytes());
            socket.send(&datagram)?;
        }
        for socket in &sockets {
            match socket.recv(&mut buffer) {
                Ok(len) => assert_eq!(len, 100, "it comes back as it was"),
                Err(_) => break,
            }
            count += 1;
        }
    }
    sockets[0].send(OVER)?;
    println!("{count} of {} came back", bursts * 64);
    Ok(count)
}

/// What has come by way of the kernel.
fn at_socket(socket: &UdpSocket) -> Result<u64, Box<dyn Error>> {
    socket.set_nonblocking(true)?;
    let mut buffer = [0; 2048];
    let mut count = 0;
    while socket.recv(&mut buffer).is_ok() {
        count += 1;
    }
    Ok(count)
}

/// What this process has taken, by the kernel's books.
fn processor_ns() -> Result<u64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    Ok(stat.split_whitespace().next().ok_or("nothing there")?.parse()?)
}

const OVER: &[u8] = b"that was all";
const WAIT: Duration = Duration::from_secs(1);
