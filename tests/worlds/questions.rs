//! What operators ask a gateway of the world through etcd: what ships reads the question and
//! decides; mail for the worker lies here until the gateway takes it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use ringgate::config::Config;
use ringgate::control::moving::{self, MoveCrew};
use ringgate::membership::{AnswerBody, Answerer, Answering};
use ringgate_fleet::values::Question;
use ringgate_fleet::values::question::What;
use ringgate_gate::{BackendId, Claims, Mail, MoveOrder, Setup, Survey, Wanted};
use ringgate_process::pages::{NotDone, Visitor, text};

/// A gateway as its pages see it.
pub(crate) struct Questions {
    claims: Arc<Claims>,
    known: Mutex<(Config, Arc<Setup>)>,
    mail: Mutex<Vec<Mail>>,
    /// Another process has the gateway.
    is_over: AtomicBool,
}

impl Questions {
    pub(crate) fn new(config: &Config, setup: &Arc<Setup>, claims: &Arc<Claims>) -> Arc<Self> {
        Arc::new(Self {
            claims: Arc::clone(claims),
            known: Mutex::new((config.clone(), Arc::clone(setup))),
            mail: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    /// What answers.
    pub(crate) fn answerer(self: &Arc<Self>) -> Answerer {
        let this = Arc::clone(self);
        Arc::new(move || {
            let this = Arc::clone(&this);
            let is_here = !this.is_over.load(Ordering::Relaxed);
            is_here.then(|| Box::new(move |question| this.answer(question)) as _)
        })
    }

    /// This is what its workers go by now.
    pub(crate) fn see(&self, config: &Config, setup: &Arc<Setup>) {
        *lock(&self.known) = (config.clone(), Arc::clone(setup));
    }

    /// Another process answers from now on.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether the worker has all that was left for it.
    pub(crate) fn is_quiet(&self) -> bool {
        lock(&self.mail).is_empty()
    }

    pub(crate) fn take_mail(&self) -> Vec<Mail> {
        std::mem::take(&mut *lock(&self.mail))
    }

    fn answer(self: Arc<Self>, question: Question) -> Answering {
        Box::pin(async move {
            let Question { what, by, query, .. } = question;
            assert_eq!(what, What::Move, "nobody asks for anything else here");
            let uri = format!("/{}?{query}", what.name()).parse().expect("part of an address");
            let reply = moving::answer(&*self, &Visitor::Fleet(by), &uri).await;
            let answer = reply.unwrap_or_else(|(status, why)| text(status, why));
            let status = answer.status().as_u16();
            (status, Pin::from(Box::new(answer.into_body())) as AnswerBody)
        })
    }

    fn post(&self, mail: Mail) -> Result<(), NotDone> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err((StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned()));
        }
        lock(&self.mail).push(mail);
        Ok(())
    }
}

impl MoveCrew for Questions {
    fn setup(&self) -> Arc<Setup> {
        Arc::clone(&lock(&self.known).1)
    }

    fn players(&self, backend: BackendId) -> u32 {
        self.claims.players(backend)
    }

    async fn find_backends(&self, name: String) -> Result<Vec<BackendId>, NotDone> {
        let (config, setup) = &*lock(&self.known);
        Ok(moving::backends_named(config, setup, &name))
    }

    async fn survey(&self, wanted: Wanted, limit: usize) -> Result<Arc<Survey>, NotDone> {
        let survey = Arc::new(Survey::new(wanted, None, limit, 1));
        self.post(Mail::Survey(Arc::clone(&survey)))?;
        Ok(survey)
    }

    async fn order(&self, orders: Arc<[Arc<MoveOrder>]>) -> Result<(), NotDone> {
        self.post(Mail::Move(orders))
    }
}

fn lock<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}
