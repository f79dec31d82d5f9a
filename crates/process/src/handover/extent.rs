//! How much of each stream was written last.

/// How much lies at the beginning of each stream's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Of the one that all workers share.
    pub shared_bytes: u64,
    /// Of each worker's.
    pub worker_bytes: Vec<u64>,
    /// It ends with a record. What is written behind the barrier does so with its last part.
    pub is_whole: bool,
}

/// Where there are no streams.
impl Default for Extent {
    fn default() -> Self {
        Self { shared_bytes: 0, worker_bytes: Vec::new(), is_whole: true }
    }
}
