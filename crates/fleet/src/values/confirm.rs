//! An operator's word that what etcd says is to be believed, for all who hold it back.

use serde::{Deserialize, Serialize};

use super::{Refused, Stored, check, check_text};

/// Up to where etcd is believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirmation {
    /// The cluster that the operator has looked at, in hexadecimal digits.
    pub cluster: String,
    /// The revision up to which.
    pub revision: i64,
    /// When, in seconds since 1970.
    pub at: u64,
    /// Who has said so, for people.
    #[serde(default)]
    pub by: String,
}

impl Confirmation {
    /// Whether it is about this cluster.
    pub fn is_about(&self, cluster_id: u64) -> bool {
        u64::from_str_radix(&self.cluster, 16) == Ok(cluster_id)
    }
}

impl Stored for Confirmation {
    fn check(&self) -> Result<(), Refused> {
        check(self.revision >= 0, "the revision is none")?;
        check_text(&self.cluster)?;
        check_text(&self.by)
    }
}
