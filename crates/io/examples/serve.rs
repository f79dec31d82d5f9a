//! Sends datagrams back by one of the drivers: what a card beside the sockets gains, with nothing
//! but the driver in between. The other side is `echo ask` of the package for AF_XDP.
//!
//! ```text
//!   serve mmsg|uring ADDRESS:PORT [INTERFACE]
//! ```
//!
//! With an interface, datagrams come and go in frames of its first queue where they can. It ends
//! with a datagram that says so, and says how much processor time it has taken.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringgate_batch::{Endpoint, LocalIp, TxTarget};
use ringgate_io::socket::{self, UdpOptions};
use ringgate_io::{
    self as io, AnyDriver, CardOptions, Choice, Driver, DriverOptions, LeftSums, SocketDriver,
    SocketKind, Wait,
};
use ringgate_xdp::netlink::Asking;
use ringgate_xdp::program::{Ours, Place, Program};
use ringgate_xdp::queue::QueueOptions;
use ringgate_xdp::routes::Watch;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let (choice, address, interface) = match args[..] {
        [choice, address] => (choice, address, None),
        [choice, address, interface] => (choice, address, Some(interface)),
        _ => return Err("mmsg|uring ADDRESS:PORT [INTERFACE]".into()),
    };
    let choice = if choice == "uring" { Choice::Uring } else { Choice::Mmsg };
    let address: SocketAddr = address.parse()?;
    let options = DriverOptions::default();
    let Some(interface) = interface else {
        let mut driver = io::open(choice, &options)?;
        register(&mut driver, address)?;
        return serve(&mut driver);
    };
    let link = Asking::open()?.link(interface)?;
    let program = Program::load(link.mac.ok_or("no Ethernet interface")?, link.queues)?;
    let _attached = program.attach(link.index, Place::Driver)?;
    let watch = Watch::start(link.index)?;
    let queue = QueueOptions {
        interface: link.index,
        queue: 0,
        mode: None,
        receive: 1024,
        send: 1024,
        frame_bytes: 2048,
        notes: None,
    };
    let card =
        CardOptions { queue, routes: Arc::clone(watch.routes()), left_sums: LeftSums::default() };
    let mut driver = io::open_with_card(choice, &options, &card)?;
    let id = register(&mut driver, address)?;
    driver.serve_by_card(id, address, false);
    let local = LocalIp::v6(*Endpoint::from(address).ip_bytes(), 0);
    program.add(&Ours { vlan: 0, local, port: address.port() })?;
    program.give_queue(0, driver.card().ok_or("it has a card")?.fd())?;
    serve(&mut driver)?;
    println!("{:?}", driver.card().map(io::Card::stats));
    Ok(())
}

fn register(
    driver: &mut AnyDriver,
    address: SocketAddr,
) -> Result<ringgate_batch::SocketId, Box<dyn Error>> {
    let opened = socket::player(address, &UdpOptions::default())?;
    Ok(driver.register(opened.fd, SocketKind::Datagram)?)
}

fn serve(driver: &mut AnyDriver) -> Result<(), Box<dyn Error>> {
    println!("ready");
    let mut is_over = false;
    while !is_over {
        driver.turn(Wait::AtMost(Duration::from_secs(1)))?;
        let ringgate_batch::Batches { rx, tx, mut out } = driver.batches();
        for (meta, bytes) in rx.iter_mut() {
            is_over |= bytes == b"that was all";
            let source = LocalIp::UNSPECIFIED;
            let target = TxTarget { socket: meta.socket, peer: Some(meta.peer), source };
            tx.room().ok_or("as many as are received")?.send_copy(bytes, target, 0);
        }
        ringgate_batch::Flush::flush(&mut out, tx);
    }
    let stat = std::fs::read_to_string("/proc/self/schedstat")?;
    let ns: u64 = stat.split_whitespace().next().ok_or("nothing there")?.parse()?;
    let count = driver.stats().rx_datagrams;
    println!("{count} datagrams, {} ns of processor time each", ns / count.max(1));
    println!("{:?}", driver.stats());
    Ok(())
}
