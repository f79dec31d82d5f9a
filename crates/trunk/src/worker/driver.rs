//! The driver around a worker's driver.

use std::io;

use ringgate_batch::{Batches, Driver, Flush, IoStats, Port, SocketId, TxBatch, Wait};
use ringgate_io::{SocketDriver, StartError};

use crate::worker::lanes::Lanes;

/// A worker's driver, and the lanes beside its sockets.
#[derive(Debug)]
pub struct Over<'d, D> {
    driver: &'d mut D,
    lanes: &'d mut Lanes,
}

impl Lanes {
    /// The driver with these lanes.
    pub const fn over<'d, D>(&'d mut self, driver: &'d mut D) -> Over<'d, D> {
        Over { driver, lanes: self }
    }
}

/// What sends the outgoing batch of an [`Over`].
#[derive(Debug)]
pub struct Out<'a, O> {
    out: O,
    lanes: &'a mut Lanes,
}

impl<D: SocketDriver> Driver for Over<'_, D> {
    type Out<'a>
        = Out<'a, D::Out<'a>>
    where
        Self: 'a;
    type OpenError = StartError;

    fn open(&mut self, port: &Port<'_>) -> Result<SocketId, StartError> {
        self.driver.open(port)
    }

    fn close(&mut self, socket: SocketId) {
        self.lanes.forget(socket);
        self.driver.close(socket);
    }

    fn hold(&mut self, socket: SocketId, is_held: bool) {
        self.lanes.hold(socket, is_held);
        self.driver.hold(socket, is_held);
    }

    fn turn(&mut self, wait: Wait) -> io::Result<()> {
        let Self { driver, lanes } = self;
        let wait = lanes.prepare(*driver, wait);
        driver.turn(wait)?;
        lanes.turn(*driver);
        Ok(())
    }

    /// What lies in the lanes' sockets stays there.
    fn let_go(&mut self) -> io::Result<()> {
        self.driver.let_go()
    }

    fn batches(&mut self) -> Batches<'_, Self::Out<'_>> {
        let Self { driver, lanes } = self;
        let Batches { rx, tx, out } = driver.batches();
        Batches { rx, tx, out: Out { out, lanes } }
    }

    fn dropped_at(&self, socket: SocketId) -> u64 {
        self.driver.dropped_at(socket)
    }

    fn stats(&self) -> IoStats {
        self.driver.stats()
    }

    fn name(&self) -> &'static str {
        self.driver.name()
    }
}

impl<O: Flush> Flush for Out<'_, O> {
    fn flush(&mut self, tx: &mut TxBatch) {
        let Self { out, lanes } = self;
        if lanes.is_idle() {
            return out.flush(tx);
        }
        lanes.sift(tx);
        out.flush(tx);
        lanes.send();
    }
}
