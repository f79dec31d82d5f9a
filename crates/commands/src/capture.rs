//! `ringgate capture`: players' datagrams at a running gateway, into a file for Wireshark.
//!
//! The file is written here and not by the daemon, which has given up files. Only whole blocks are
//! written, so it can be read whenever and however the capture ends.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Failure;
use super::admin::{self, Place};
use ringgate_config::values;
use ringgate_report::pcapng::{Block, blocks};
use ringgate_report::text::{Append as _, count};

/// Write players' datagrams at a running gateway into a file, with what has become of each
///
/// Datagrams as they come in and as they leave, for Wireshark and tshark. With several of
/// --listener, --client-id, --address and --drop-reason, datagrams for which all of them hold.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true))]
pub struct Args {
    /// Of this listener
    #[arg(long, value_name = "LISTENER", group = "which")]
    listener: Option<String>,
    /// Of and for this player, as `ringgate sessions` names it
    #[arg(long, alias = "client", value_name = "ID", group = "which")]
    client_id: Option<String>,
    /// Of and for players at this address or in this network
    #[arg(long, value_name = "PREFIX", group = "which")]
    address: Option<String>,
    /// Dropped for this reason, as `ringgate status` names it; may be given again
    #[arg(long, value_name = "REASON", group = "which")]
    drop_reason: Vec<String>,
    /// The file, which must not be there yet; - for stdout
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Payloads in clear in place of sealed packets: the file then holds what players and games say
    #[arg(long)]
    decrypted: bool,
    /// End after so many packets
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    max_packets: u64,
    /// End after this time, an hour at most
    #[arg(long = "for", value_name = "TIME", default_value = "60s", value_parser = lasts)]
    lasts: Duration,
    /// Keep so many bytes of each packet, its headers included
    #[arg(long, value_name = "BYTES", default_value_t = 65_535, value_parser = clap::value_parser!(u32).range(48..=65_535))]
    snaplen: u32,
    #[command(flatten)]
    place: Place,
}

/// How long something is looked at.
pub(super) fn lasts(text: &str) -> Result<Duration, String> {
    values::time_within(text, MS..=HOUR, "a time such as 30s or 5m, 1h at most")
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let admin = args.place.find()?;
    let mut out = Out::create(&args.out)?;
    let answer = admin.stream(&request(args));
    let answer = answer.inspect_err(|_| out.remove())?;
    let name = out.name();
    let clear =
        if args.decrypted { "; it will hold what players and games say, in clear" } else { "" };
    tell(&format!("capturing into {name}{clear} (Ctrl-C ends it early)"));
    let mut taken = Taken::default();
    let copied = copy(answer, &mut out, &mut taken);
    let packets = count(taken.packets);
    match copied {
        Ok(()) => {}
        Err(Trouble::NobodyReads) => return Ok(()),
        Err(Trouble::Write(why)) => {
            return Err(Failure::failed(format_args!(
                "cannot write {name}: {why}; the capture is over, and {packets} packets are in the file"
            )));
        }
        Err(Trouble::Read(why)) => {
            return Err(Failure::failed(format_args!(
                "the gateway has gone: {why}; {packets} packets are in {name}"
            )));
        }
    }
    let Some(why) = &taken.ended else {
        return Err(Failure::failed(format_args!(
            "the gateway has gone before the capture was over; {packets} packets are in {name}"
        )));
    };
    tell(&format!("{packets} packets in {name}: {why}"));
    if taken.lost > 0 {
        tell(&format!(
            "{} more were lost, because they came faster than they were taken: ask for less (--drop-reason, --address)",
            count(taken.lost)
        ));
    }
    Ok(())
}

fn request(args: &Args) -> String {
    let ms = args.lasts.as_millis();
    let mut path =
        format!("/capture?packets={}&for_ms={ms}&snaplen={}", args.max_packets, args.snaplen);
    admin::say(&mut path, "listener", args.listener.as_ref());
    admin::say(&mut path, "client", args.client_id.as_ref());
    admin::say(&mut path, "address", args.address.as_ref());
    for reason in &args.drop_reason {
        write!(path, "&reason={reason}");
    }
    if args.decrypted {
        path.push_str("&decrypted");
    }
    path
}

/// For who looks on: stdout may be the file.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Where packets go.
struct Out<'a> {
    path: &'a Path,
    /// `None` for stdout.
    file: Option<File>,
    /// How much of it are whole blocks.
    end: u64,
}

impl<'a> Out<'a> {
    /// For its owner only, and never in the place of another file.
    fn create(path: &'a Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self { path, file: None, end: 0 });
        }
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match made {
            Ok(file) => Ok(Self { path, file: Some(file), end: 0 }),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                Err(Failure::bad_input(format_args!("--out: {} already exists", path.display())))
            }
            Err(why) => Err(Failure::bad_input(format_args!(
                "--out: cannot write {}: {why}",
                path.display()
            ))),
        }
    }

    fn name(&self) -> String {
        if self.file.is_some() { self.path.display().to_string() } else { "stdout".to_owned() }
    }

    /// There was nothing to write into it.
    fn remove(&self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(self.path);
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &self.file {
            Some(file) => {
                // What a full disk took of a block is cut off again.
                let cut = |_: &io::Error| drop(file.set_len(self.end));
                (&*file).write_all(bytes).inspect_err(cut)?;
                self.end += bytes.len() as u64;
                Ok(())
            }
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
        }
    }
}

/// What has been written.
#[derive(Default)]
struct Taken {
    packets: u64,
    lost: u64,
    /// Why the capture is over, if the gateway has said so.
    ended: Option<String>,
}

enum Trouble {
    NobodyReads,
    Read(io::Error),
    Write(io::Error),
}

/// Passes on what comes, block by block.
fn copy(mut from: impl Read, out: &mut Out<'_>, taken: &mut Taken) -> Result<(), Trouble> {
    let mut waiting = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let len = from.read(&mut chunk).map_err(Trouble::Read)?;
        if len == 0 {
            return Ok(());
        }
        waiting.extend_from_slice(&chunk[..len]);
        let (end, counted) = look(&waiting).map_err(Trouble::Read)?;
        match out.write(&waiting[..end]) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::BrokenPipe => {
                return Err(Trouble::NobodyReads);
            }
            Err(why) => return Err(Trouble::Write(why)),
        }
        waiting.drain(..end);
        taken.add(counted);
    }
}

/// Where the last whole block ends, and what is in those before.
fn look(bytes: &[u8]) -> io::Result<(usize, Taken)> {
    let mut counted = Taken::default();
    let mut whole = 0;
    for block in blocks(bytes) {
        let broken = || io::Error::new(io::ErrorKind::InvalidData, "what it sends is no capture");
        let (block, end) = block.map_err(|_| broken())?;
        whole = end;
        match block {
            Block::Packet => counted.packets += 1,
            // Those without a word are only a sign of life.
            Block::Statistics { lost, comment, .. } if !comment.is_empty() => {
                counted.lost += lost;
                counted.ended = Some(comment.to_owned());
            }
            _ => {}
        }
    }
    Ok((whole, counted))
}

impl Taken {
    fn add(&mut self, more: Self) {
        self.packets += more.packets;
        self.lost += more.lost;
        self.ended = more.ended.or_else(|| self.ended.take());
    }
}

const CHUNK_BYTES: usize = 64 << 10;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_hours(1);
