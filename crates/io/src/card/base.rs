//! What the cards of all workers have in common: an interface, the program on it and the frames
//! that it takes for ours, and the table of routes.
//!
//! It is opened while the process may do so. What remains to be done afterwards takes descriptors
//! only: addresses that come and go, queues that are given and taken back.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Card, CardChoice, CardCounts, CardMode, CardNews, CardOptions, GivenBase, LeftSums};
use crate::{SocketDriver, StartError};
use ringgate_xdp::book::Book;
use ringgate_xdp::frame::Mac;
use ringgate_xdp::netlink::{Asking, Facts, Link, Snapshot};
use ringgate_xdp::program::{Attached, Counts, Place, Program};
use ringgate_xdp::queue::{Mode, Notes, QueueOptions, Statistics};
use ringgate_xdp::routes::{Prepared, Routes, Watch};

/// An interface with our program on it.
#[derive(Debug)]
pub struct CardBase {
    choice: CardChoice,
    link: Link,
    place: Place,
    program: Arc<Program>,
    /// Which the program knows.
    queues: u32,
    sizes: [u32; 3],
    left_sums: LeftSums,
    /// Takes the program off the interface when it is dropped.
    attached: Attached,
    book: Arc<Book>,
    routes: Arc<Routes>,
    is_attached: Arc<AtomicBool>,
    /// Until the watch has it.
    prepared: Option<Prepared>,
    watch: Option<Watch>,
}

impl CardBase {
    /// Puts the program on an interface, for so many workers. No frame is ours yet.
    pub fn open(choice: &CardChoice, workers: u16) -> Result<Self, StartError> {
        let name = &choice.interface;
        let fail = |what: &str| {
            let what = format!("{what} interface {name}");
            move |why| StartError::card(what, why)
        };
        let link = Asking::open().and_then(|mut it| it.link(name)).map_err(|why| {
            let error = StartError::card(format!("find interface {name}"), why);
            error.advised("`ip link show` lists the interfaces of this network namespace".into())
        })?;
        let facts = Facts::of(link.index);
        enough_queues(choice, &link, &facts, workers)?;
        let mac = link.mac.ok_or_else(|| {
            let error = io::Error::other("it is no Ethernet interface");
            StartError::card(format!("serve by interface {name}"), error)
        })?;
        // All that there could be: a card may be given more while the program runs.
        let queues = link.queues.max(u32::from(workers));
        let program = Program::load(mac, queues).map_err(fail("load a program for"))?;
        let prepared = Prepared::new(link.index).map_err(fail("read the routes of"))?;
        let book = Book::new(Arc::new(program), link.index);
        let renewed = book.renew(prepared.snapshot().clone());
        renewed.map_err(fail("tell a program the addresses of"))?;
        let program = Arc::clone(book.program());
        let (attached, place) = attach(&program, link.index, choice.mode).map_err(|why| {
            StartError::program(format!("put a program on interface {name}"), why)
        })?;
        let sizes = [RECEIVE_FRAMES, SEND_FRAMES, frame_bytes(link.mtu)];
        let left_sums = left_sums(&link, &facts);
        Ok(Self {
            choice: choice.clone(),
            link,
            place,
            program,
            queues,
            sizes,
            left_sums,
            attached,
            book: Arc::new(book),
            routes: Arc::clone(prepared.routes()),
            is_attached: Arc::new(AtomicBool::new(true)),
            prepared: Some(prepared),
            watch: None,
        })
    }

    /// One that another process has opened, by what it has [given](Self::given). What it was asked
    /// for is what we ask for.
    ///
    /// # Errors
    /// `NotFound` where its interface has gone, whether there is another one of the name or not.
    pub fn adopt(choice: &CardChoice, given: GivenBase) -> io::Result<Self> {
        let GivenBase { attached, tables, queues, is_generic, sizes, mac } = given;
        let attached = Attached::adopt(attached);
        let mut link = Asking::open()?.link(&choice.interface)?;
        let (program, interface) = what_is_attached(&attached, &link);
        if interface != Some(link.index) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let left_sums = left_sums(&link, &Facts::of(link.index));
        let mac = mac.or(link.mac);
        let is_attached = Arc::new(AtomicBool::new(takes_frames(&link, program, mac)));
        link.mac = mac;
        let prepared = Prepared::new(link.index)?;
        let program = Arc::new(Program::adopt(tables, queues)?);
        let snapshot = prepared.snapshot().clone();
        let book = Book::adopt(Arc::clone(&program), link.index, snapshot);
        Ok(Self {
            choice: choice.clone(),
            link,
            place: if is_generic { Place::Generic } else { Place::Driver },
            program,
            queues,
            sizes,
            left_sums,
            attached,
            book: Arc::new(book),
            routes: Arc::clone(prepared.routes()),
            is_attached,
            prepared: Some(prepared),
            watch: None,
        })
    }

    /// What another process needs to go on with it.
    pub fn given(&self) -> io::Result<GivenBase> {
        Ok(GivenBase {
            attached: self.attached.try_clone()?,
            tables: self.program.given()?,
            queues: self.queues,
            is_generic: self.place == Place::Generic,
            sizes: self.sizes,
            mac: self.link.mac,
        })
    }

    /// What was asked for.
    pub const fn choice(&self) -> &CardChoice {
        &self.choice
    }

    /// What a driver is opened with that is to serve one of the queues.
    pub fn options(&self, queue: u32) -> CardOptions {
        let mode = match self.choice.mode {
            CardMode::Auto if self.place == Place::Driver => None,
            CardMode::ZeroCopy => Some(Mode::ZeroCopy),
            CardMode::Auto | CardMode::Copy | CardMode::Generic => Some(Mode::Copy),
        };
        let [receive, send, frame_bytes] = self.sizes;
        let interface = self.link.index;
        let left_sums = self.left_sums;
        let notes = (left_sums != LeftSums::default()).then_some(Notes::Sender);
        let queue = QueueOptions { interface, queue, mode, receive, send, frame_bytes, notes };
        CardOptions { queue, routes: Arc::clone(&self.routes), left_sums }
    }

    /// How frames come and go, with a driver that was opened for it.
    pub fn mode_name(&self, card: Option<&Card>) -> &'static str {
        match (self.place, card.map(Card::mode)) {
            (_, None) => "not used",
            (Place::Generic, _) => "generic",
            (Place::Driver, Some(Mode::ZeroCopy)) => "zero-copy",
            (Place::Driver, Some(Mode::Copy)) => "copy",
        }
    }

    /// Frames for sockets that are bound to `in_frames` are ours from now on, and no others. Those
    /// bound to `others` are ours as well.
    pub fn serve(&self, in_frames: Vec<SocketAddr>, others: Vec<SocketAddr>) -> io::Result<()> {
        self.book.serve(in_frames, others)
    }

    /// Addresses that frames may be for, each with its port and VLAN.
    pub fn addresses(&self) -> usize {
        self.book.addresses()
    }

    /// Frames of ours on a queue go to this driver from now on.
    pub fn give_queue(&self, queue: u32, driver: &impl SocketDriver) -> io::Result<()> {
        let card = driver.card().ok_or(io::ErrorKind::NotFound)?;
        self.program.give_queue(queue, card.fd())
    }

    /// What program, kernel and driver say of the frames of a queue.
    pub fn counts(&self, queue: u32, card: Option<&Card>) -> CardCounts {
        let Counts { taken, unserved } = self.program.counts(queue);
        let Statistics { receive_full, fill_empty, dropped, invalid } =
            card.and_then(|it| it.statistics().ok()).unwrap_or_default();
        let driver = card.map(Card::stats).unwrap_or_default();
        CardCounts { taken, unserved, receive_full, fill_empty, dropped, invalid, ..driver }
    }

    /// Whether the program is on the interface, which has the address that the program knows, as
    /// far as the kernel has said.
    pub fn is_attached(&self) -> bool {
        self.is_attached.load(Ordering::Relaxed)
    }

    /// From now on, on a thread of its own, follows what changes: routes, neighbours, addresses.
    pub fn watch(&mut self, mut tell: impl FnMut(CardNews) + Send + 'static) -> io::Result<()> {
        let Some(prepared) = self.prepared.take() else { return Ok(()) };
        let now = Asking::open()?.link(&self.choice.interface)?;
        let ((own, _), index) = (what_is_attached(&self.attached, &now), self.link.index);
        let mac = self.link.mac;
        let (book, is_attached) = (Arc::clone(&self.book), Arc::clone(&self.is_attached));
        self.watch = Some(prepared.start(move |snapshot: Snapshot| {
            let now = snapshot.links.iter().find(|link| link.index == index);
            let is_there = now.is_some_and(|now| takes_frames(now, own, mac));
            if is_attached.swap(is_there, Ordering::Relaxed) != is_there {
                tell(if is_there { CardNews::ProgramBack } else { CardNews::ProgramGone });
            }
            if let Err(why) = book.renew(snapshot) {
                tell(CardNews::Untold(why));
            }
        })?);
        Ok(())
    }
}

/// The kernel's numbers of our program and of the interface that it is held to. Before Linux 5.19
/// a process without rights may not be told: then they are those of the interface of the name.
fn what_is_attached(attached: &Attached, link: &Link) -> (Option<u32>, Option<u32>) {
    match attached.what() {
        Ok((program, interface)) => (Some(program), interface),
        Err(_) => (link.program, Some(link.index)),
    }
}

/// Whether our program takes frames of an interface: it is there, and knows them by its address.
fn takes_frames(link: &Link, own: Option<u32>, mac: Option<Mac>) -> bool {
    own.is_some() && link.program == own && link.mac == mac
}

/// What is known of an interface: itself, its card, and whether a VLAN is in it.
pub fn look_at_card(name: &str) -> io::Result<(Link, Facts, bool)> {
    let mut asking = Asking::open()?;
    let link = asking.link(name)?;
    let links = asking.snapshot()?.links;
    let is_in_it = |other: &Link| other.vlan.is_some_and(|(below, _)| below == link.index);
    let has_vlans = links.iter().any(is_in_it);
    let facts = Facts::of(link.index);
    Ok((link, facts, has_vlans))
}

/// Bytes of one worker's frames, at an interface with this MTU: they are locked.
pub const fn card_memory(mtu: u32) -> u64 {
    ((RECEIVE_FRAMES + SEND_FRAMES) * frame_bytes(mtu)) as u64
}

const fn frame_bytes(mtu: u32) -> u32 {
    if mtu <= SMALL_MTU_MAX { 2048 } else { 4096 }
}

fn left_sums(link: &Link, facts: &Facts) -> LeftSums {
    LeftSums { copy: facts.writes_sums(link, false), zero_copy: facts.writes_sums(link, true) }
}

/// Whether there is a queue for each worker.
fn enough_queues(
    choice: &CardChoice,
    link: &Link,
    facts: &Facts,
    workers: u16,
) -> Result<(), StartError> {
    let name = &choice.interface;
    let in_use = facts.queues.filter(|count| *count > 0).unwrap_or(link.queues);
    let refuse = |what: String, why: String, advice: String| {
        Err(StartError::card(what, io::Error::other(why)).advised(advice))
    };
    if let Some(wanted) = choice.queues.filter(|wanted| *wanted > in_use) {
        return refuse(
            format!("serve {wanted} queues of interface {name}"),
            format!("it has {in_use} in use"),
            format!(
                "`ethtool -L {name} combined {wanted}` gives it more, or say queues = {in_use}"
            ),
        );
    }
    let served = choice.queues.unwrap_or(in_use);
    if u32::from(workers) > served {
        return refuse(
            format!("serve {workers} workers by interface {name}"),
            format!("each worker needs a queue of its own, and there are {served}"),
            format!(
                "set [gateway] workers = {served}, or give the card more queues (`ethtool -L {name} combined {workers}`)"
            ),
        );
    }
    Ok(())
}

/// Where the driver runs no programs, `Auto` takes what is slower.
fn attach(program: &Program, interface: u32, mode: CardMode) -> io::Result<(Attached, Place)> {
    let place = if mode == CardMode::Generic { Place::Generic } else { Place::Driver };
    match program.attach(interface, place) {
        Err(why) if mode == CardMode::Auto && is_unknown(&why) => {
            Ok((program.attach(interface, Place::Generic)?, Place::Generic))
        }
        attached => attached.map(|it| (it, place)),
    }
}

fn is_unknown(why: &io::Error) -> bool {
    why.raw_os_error() == Some(libc::EOPNOTSUPP)
}

/// Frames of 2048 bytes hold 1792 from a card: packets of so many, with room for tags.
const SMALL_MTU_MAX: u32 = 1700;

/// What may have arrived before it is looked at.
const RECEIVE_FRAMES: u32 = 2048;

/// What may be on its way out.
const SEND_FRAMES: u32 = 1024;
