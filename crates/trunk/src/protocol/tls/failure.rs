//! What becomes of a stream that is read: something, nothing, or its end, which has a name.

use std::fmt;
use std::io;

use rustls::{CertificateError, Error};

/// What reading has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing more, for now.
    Nothing,
    /// Perhaps something in the inbox: read again once that is taken out.
    Something,
    /// The other side has closed the connection in order.
    Closed,
}

/// Why a connection is over.
#[derive(Debug)]
pub enum Failure {
    /// The other side has not proven who it is, or breaks TLS.
    Tls(Error),
    /// It speaks TLS, and not this protocol.
    Protocol,
    /// The connection has ended without a word, or failed.
    Io(io::Error),
}

impl Failure {
    /// All names that [`name`](Self::name) gives.
    pub const NAMES: [&'static str; 9] = [
        "connection",
        "protocol",
        "certificate_missing",
        "certificate_early",
        "certificate_expired",
        "certificate_foreign",
        "certificate_unknown",
        "refused_by_peer",
        "tls",
    ];

    /// Its name in metrics and events.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Io(_) => "connection",
            Self::Protocol => "protocol",
            Self::Tls(Error::NoCertificatesPresented) => "certificate_missing",
            Self::Tls(Error::InvalidCertificate(why)) => match why {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "certificate_expired"
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "certificate_early"
                }
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => "certificate_foreign",
                _ => "certificate_unknown",
            },
            Self::Tls(Error::AlertReceived(_)) => "refused_by_peer",
            Self::Tls(_) => "tls",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(Error::InvalidCertificate(why)) => f.write_str(&words(why)),
            Self::Tls(Error::AlertReceived(alert)) => write!(
                f,
                "the other side refuses the connection ({alert:?}), mostly for this side's certificate: its log says why"
            ),
            Self::Tls(why) => why.fmt(f),
            Self::Protocol => f.write_str("the other side does not speak this protocol"),
            Self::Io(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

/// What is wrong with a certificate, with both names where they differ.
fn words(why: &CertificateError) -> String {
    match why {
        // Another one may be called the same.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the other side's certificate is signed by no authority in `ca`".to_owned()
        }
        CertificateError::NotValidForNameContext { expected, presented } => {
            let plain = |it: &String| it.split('"').nth(1).unwrap_or(it).to_owned();
            let presented: Vec<_> = presented.iter().map(plain).collect();
            let (expected, presented) = (expected.to_str(), presented.join(", "));
            format!("the other side's certificate is for {presented}, and not for {expected}")
        }
        other => Error::InvalidCertificate(other.clone()).to_string(),
    }
}
