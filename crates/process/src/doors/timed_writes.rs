//! A connection that is given up when its other end reads nothing for a while: a peer that asks and
//! does not read the answer would keep a seat, and the answer in memory, for as long as it likes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail when nothing of them was taken for a while.
#[derive(Debug)]
pub struct TimedWrites<S> {
    stream: S,
    patience: Duration,
    /// Runs while something waits to be taken.
    limit: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> TimedWrites<S> {
    /// One whose other end may read nothing for so long.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, limit: Box::pin(sleep(patience)), is_waiting: false }
    }

    /// What became of an attempt to write. Each that gets on makes the next one wait anew.
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.limit.as_mut().reset(Instant::now() + self.patience);
        }
        ready!(self.limit.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedWrites<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedWrites<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_nothing_is_given_up() {
        let (near, _far) = tokio::io::duplex(100);
        let mut near = TimedWrites::new(near, PATIENCE);
        let began = Instant::now();
        let failed = near.write_all(&[0; 1000]).await.expect_err("nobody reads");
        assert_eq!((failed.kind(), began.elapsed()), (io::ErrorKind::TimedOut, PATIENCE));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_slowly_is_waited_for() {
        let (near, mut far) = tokio::io::duplex(100);
        let mut near = TimedWrites::new(near, PATIENCE);
        let reading = async {
            let mut some = [0; 50];
            for _ in 0..20 {
                tokio::time::sleep(PATIENCE / 2).await;
                far.read_exact(&mut some).await.expect("it is being written");
            }
        };
        let (written, ()) = tokio::join!(near.write_all(&[0; 1000]), reading);
        written.expect("it is taken in the end");
    }
}
