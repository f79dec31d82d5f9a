//! What a gateway and an agent can both be asked for: to drain, to read the file again, to hand
//! over, and to believe what is held back. Each says how it does that; how a request is read and
//! answered is the same.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::access::{Visitor, note};
use super::answer::{NotDone, Reply, as_json, text};
use super::query::{Query, wrong};
use super::site::{For, Page, Site, Visit};
use crate::reloads::Outcome;

/// How a process is to drain.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskedDrain {
    /// How long that may take.
    pub deadline: Option<Duration>,
    /// Other members of its cluster go on with its sessions.
    pub hands_over: bool,
}

/// A process that can be asked.
pub trait Obeys: Site {
    /// Takes nobody in any more, and ends when everybody has left.
    fn drain(
        self: &Arc<Self>,
        asked: AskedDrain,
    ) -> impl Future<Output = Result<Draining, NotDone>> + Send;

    /// Takes players in again. Whether there was a drain, or why it goes on.
    fn undrain(
        self: &Arc<Self>,
    ) -> impl Future<Output = Result<Result<bool, &'static str>, NotDone>> + Send;

    /// Reads the file again, or only says what that would do.
    fn reload(
        self: &Arc<Self>,
        is_dry: bool,
    ) -> impl Future<Output = Result<Outcome, NotDone>> + Send;

    /// Starts the next release and hands over to it.
    fn upgrade(self: &Arc<Self>) -> impl Future<Output = Result<Upgraded, NotDone>> + Send;

    /// Believes what is held back of the fleet under this number. Whether something is.
    fn confirm(self: &Arc<Self>, doubt: u64) -> impl Future<Output = Result<bool, NotDone>> + Send;
}

/// The drain that is under way, as a process says it and as a command hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Draining {
    /// Players who are there.
    pub sessions: u64,
    /// How long they may stay.
    pub left_ms: u64,
}

/// How the next process is known and how long players waited, or why it does not go on.
pub type Upgraded = Result<HandedOver, String>;

/// A hand-over that has worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The process that goes on.
    pub pid: u32,
    /// For how long none did.
    pub pause_us: u64,
}

/// Pages for what is asked of the whole process.
pub fn pages<S: Obeys>() -> [Page<S>; 3] {
    [
        Page::new("/reload", For::Changing, reload),
        Page::new("/upgrade", For::Changing, upgrade),
        Page::new("/fleet/confirm", For::Changing, confirm),
    ]
}

/// `POST /drain?deadline_ms=NUMBER`.
pub async fn drain<S: Obeys>(visit: Visit<S>) -> Reply {
    let deadline = deadline(&Query::of(&visit.uri, &["deadline_ms"])?)?;
    drain_until(&visit, AskedDrain { deadline, hands_over: false }).await
}

/// The same, once that is read.
pub async fn drain_until<S: Obeys>(
    Visit { site, visitor, .. }: &Visit<S>,
    asked: AskedDrain,
) -> Reply {
    note(visitor, "drain");
    let Draining { sessions, left_ms } = site.drain(asked).await?;
    let answer = json!({ "state": "draining", "sessions": sessions, "left_ms": left_ms });
    Ok(as_json(StatusCode::OK, answer))
}

/// How long a drain may take.
pub fn deadline(query: &Query) -> Result<Option<Duration>, NotDone> {
    query.read("deadline_ms", "milliseconds, at most a day", |text| {
        text.parse().ok().filter(|ms| *ms <= DEADLINE_MAX_MS).map(Duration::from_millis)
    })
}

/// `POST /undrain`.
pub async fn undrain<S: Obeys>(Visit { site, visitor, .. }: Visit<S>) -> Reply {
    note(&visitor, "undrain");
    Ok(match site.undrain().await? {
        Ok(was_draining) => {
            as_json(StatusCode::OK, json!({ "state": "serving", "was_draining": was_draining }))
        }
        Err(why) => text(StatusCode::CONFLICT, format!("{why}\n")),
    })
}

async fn reload<S: Obeys>(Visit { site, visitor, uri }: Visit<S>) -> Reply {
    let query = Query::of(&uri, &["dry_run"])?;
    let is_dry = query.read("dry_run", "1", |text| (text == "1").then_some(()))?.is_some();
    note(&visitor, if is_dry { "dry run of a reload" } else { "reload" });
    Ok(match site.reload(is_dry).await? {
        Ok(changes) => as_json(StatusCode::OK, json!({ "reloaded": !is_dry, "changes": changes })),
        Err(mistakes) => {
            let answer = json!({ "reloaded": false, "mistakes": mistakes });
            as_json(StatusCode::UNPROCESSABLE_ENTITY, answer)
        }
    })
}

/// Only through the control socket: a token that a page may change things with should start no
/// program.
async fn upgrade<S: Obeys>(Visit { site, visitor, .. }: Visit<S>) -> Reply {
    if !matches!(visitor, Visitor::Unix { .. }) {
        let why = "an upgrade is asked for through the control socket\n";
        return Err((StatusCode::FORBIDDEN, why.to_owned()));
    }
    note(&visitor, "upgrade");
    Ok(match site.upgrade().await? {
        Ok(HandedOver { pid, pause_us }) => {
            as_json(StatusCode::OK, json!({ "upgraded": true, "pid": pid, "pause_us": pause_us }))
        }
        Err(why) => {
            let answer = json!({ "upgraded": false, "why": why });
            as_json(StatusCode::CONFLICT, answer)
        }
    })
}

/// `POST /fleet/confirm?doubt=NUMBER`.
async fn confirm<S: Obeys>(Visit { site, visitor, uri }: Visit<S>) -> Reply {
    let doubt = Query::of(&uri, &["doubt"])?.read("doubt", "a number", |it| it.parse().ok())?;
    let doubt = doubt.ok_or_else(|| wrong("expected doubt=NUMBER"))?;
    note(&visitor, &format!("confirmation of doubt {doubt}"));
    let confirmed = site.confirm(doubt).await?;
    Ok(as_json(StatusCode::OK, json!({ "confirmed": confirmed })))
}

/// A drain is over after a day at the most.
const DEADLINE_MAX_MS: u64 = 24 * 60 * 60 * 1000;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use http::Request;
    use http::request::Parts;
    use http_body_util::BodyExt;

    use super::super::access::{AccessRefusal, Right, Rules};
    use super::super::answer::Answer;
    use super::super::site::pages as all_pages;
    use super::*;

    /// A process that does all it is asked for, and counts upgrades.
    #[derive(Default)]
    struct Willing {
        upgrades: AtomicU32,
    }

    const TOKEN: &[u8] = b"a-token-of-the-operators";

    impl Site for Willing {
        fn pages() -> Vec<Page<Self>> {
            let mut all = vec![
                Page::new("/drain", For::Changing, drain),
                Page::new("/undrain", For::Changing, undrain),
            ];
            all.extend(pages());
            all
        }

        fn judge(&self, visitor: &Visitor, head: &Parts) -> Result<Right, AccessRefusal> {
            Rules { hosts: &[], is_token: Some(&|shown| shown == TOKEN) }.judge(visitor, head)
        }

        async fn publish(&self) -> Vec<String> {
            Vec::new()
        }
    }

    impl Obeys for Willing {
        async fn drain(self: &Arc<Self>, asked: AskedDrain) -> Result<Draining, NotDone> {
            let left_ms = asked.deadline.map_or(7, |it| it.as_millis() as u64);
            Ok(Draining { sessions: 3, left_ms })
        }

        async fn undrain(self: &Arc<Self>) -> Result<Result<bool, &'static str>, NotDone> {
            Ok(Err("it goes on"))
        }

        async fn reload(self: &Arc<Self>, is_dry: bool) -> Result<Outcome, NotDone> {
            Ok(if is_dry { Ok(vec!["a".to_owned()]) } else { Err(vec!["b".to_owned()]) })
        }

        async fn upgrade(self: &Arc<Self>) -> Result<Upgraded, NotDone> {
            tokio::task::yield_now().await;
            self.upgrades.fetch_add(1, Ordering::Relaxed);
            Ok(Ok(HandedOver { pid: 8, pause_us: 9 }))
        }

        async fn confirm(self: &Arc<Self>, doubt: u64) -> Result<bool, NotDone> {
            Ok(doubt == 5)
        }
    }

    async fn asked(site: &Arc<Willing>, visitor: Visitor, path: &str) -> (u16, String) {
        let request = Request::post(path).header("host", "localhost");
        let request = request.header("authorization", [b"Bearer ", TOKEN].concat());
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let answer: Answer = all_pages(Arc::clone(site))(head, visitor).await;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("it is there").to_bytes();
        (status, String::from_utf8(body.to_vec()).expect("text"))
    }

    fn over_tcp() -> Visitor {
        Visitor::Tcp(([192, 0, 2, 1], 5000).into())
    }

    #[tokio::test]
    async fn a_program_is_started_through_the_control_socket_alone() {
        let site = Arc::new(Willing::default());
        for visitor in [over_tcp(), Visitor::Fleet("an operator".to_owned())] {
            let (status, why) = asked(&site, visitor, "/upgrade").await;
            assert_eq!(
                (status, &*why),
                (403, "an upgrade is asked for through the control socket\n")
            );
        }
        assert_eq!(site.upgrades.load(Ordering::Relaxed), 0);
        let unix = Visitor::Unix { uid: 0, pid: None };
        let (status, said) = asked(&site, unix, "/upgrade").await;
        let expected = "{\"pause_us\":9,\"pid\":8,\"schema\":1,\"upgraded\":true}\n";
        assert_eq!((status, &*said), (200, expected));
        assert_eq!(site.upgrades.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_was_asked_for_is_done_though_its_asker_goes() {
        let site = Arc::new(Willing::default());
        let unix = Visitor::Unix { uid: 0, pid: None };
        tokio::select! {
            biased;
            answer = asked(&site, unix, "/upgrade") => panic!("it waits: {answer:?}"),
            () = std::future::ready(()) => {}
        }
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        assert_eq!(site.upgrades.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_a_process_does_is_answered_in_the_same_words_whatever_its_role() {
        let site = Arc::new(Willing::default());
        for (path, status, said) in [
            ("/drain", 200, "{\"left_ms\":7,\"schema\":1,\"sessions\":3,\"state\":\"draining\"}\n"),
            (
                "/drain?deadline_ms=20",
                200,
                "{\"left_ms\":20,\"schema\":1,\"sessions\":3,\"state\":\"draining\"}\n",
            ),
            (
                "/drain?deadline_ms=86400001",
                400,
                "deadline_ms: found \"86400001\", expected milliseconds, at most a day\n",
            ),
            ("/undrain", 409, "it goes on\n"),
            ("/reload?dry_run=1", 200, "{\"changes\":[\"a\"],\"reloaded\":false,\"schema\":1}\n"),
            ("/reload", 422, "{\"mistakes\":[\"b\"],\"reloaded\":false,\"schema\":1}\n"),
            ("/reload?now", 400, "\"now\" is not known here, expected dry_run\n"),
            ("/fleet/confirm?doubt=5", 200, "{\"confirmed\":true,\"schema\":1}\n"),
            ("/fleet/confirm", 400, "expected doubt=NUMBER\n"),
        ] {
            assert_eq!(asked(&site, over_tcp(), path).await, (status, said.to_owned()), "{path}");
        }
    }
}
