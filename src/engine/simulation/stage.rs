//! Everything outside of the daemon: the Source, the network, the clock, the operator. Events happen in the order of the
//! clock, also while the daemon waits for an answer.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash};
use std::ops::Range;
use std::sync::{Arc, Weak};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use reqwest::{Request, Response};
use resourcesync::Capability;
use resyncd_fetch::{FetchError, HttpNetwork};
use url::Url;

use super::daemon::{Filtering, Inside};
use super::documents::{self, Target};
use super::handwritten::{Handwritten, Page};
use super::history::Act;
use super::network::{Fate, Form, Network};
use super::packages::{PackageForm, PackageNo};
use super::promises::Witness;
use super::source::{
    Boundary, Content, Fault, Notification, RESOURCES, ResourceNo, SetNo, SimulatedDocument, Source,
};
use crate::store::Receipt;
use crate::test_clock::SimulatedClock;

/// What the Destination has requested, and what it was made to do.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Requests {
    /// Requests for Change Lists and their indexes, and for Change Dumps and their packages.
    pub(super) change_lists: u64,
    /// Requests for documents and packages.
    pub(super) documents: u64,
    /// Requests for packages.
    pub(super) packages: u64,
    /// Requests for resources.
    pub(super) contents: u64,
    /// Requests for documents that have not changed since they were requested last.
    pub(super) unchanged: u64,
    pub(super) gaps: u64,
    /// Notifications that prove nothing.
    pub(super) hints: u64,
    pub(super) crashes: u64,
}

/// What the operator of the daemon does, and its hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Poll(SetNo),
    Approve,
    /// By the hub: it verifies the subscription to a set's notifications.
    Verify(SetNo),
    /// Starts the daemon with another configuration.
    Restart {
        filtering: Filtering,
    },
}

#[derive(Debug)]
pub(super) struct Scene {
    /// Milliseconds since the world began.
    pub(super) moment: u64,
    pub(super) source: Source,
    pub(super) network: Network,
    /// What happens later, by its moment.
    pub(super) timeline: VecDeque<(u64, Act)>,
    pub(super) documents_down: bool,
    pub(super) contents_down: bool,
    pub(super) faults: BTreeMap<(SetNo, SimulatedDocument), Fault>,
    pub(super) handwritten: Handwritten,
    /// How long a document takes, in milliseconds.
    pub(super) latency: u64,
    /// Whether what a hub states counts as the Source's own.
    pub(super) trusts_hub: bool,
    pub(super) orders: VecDeque<Order>,
    pub(super) requests: Requests,
    /// The URI of the resource that was requested last.
    pub(super) last_content: Option<Url>,
    /// The version of each file of the mirror.
    pub(super) files: BTreeMap<ResourceNo, u32>,
    pub(super) witness: Witness,
    /// The first promise that was broken.
    pub(super) broken: Option<String>,
    /// Of what the daemon has done so far: equal for a history that is run again.
    pub(super) trace: DefaultHasher,
}

enum Event {
    Act(Act),
    Delivery(Arc<Notification>, Vec<u8>),
}

pub(super) struct Stage {
    scene: Mutex<Scene>,
    clock: Arc<SimulatedClock>,
    inside: Mutex<Weak<Inside>>,
}

impl Stage {
    pub(super) fn new(scene: Scene, clock: Arc<SimulatedClock>) -> Arc<Self> {
        clock.set(scene.moment);
        Arc::new(Self {
            scene: Mutex::new(scene),
            clock,
            inside: Mutex::default(),
        })
    }

    /// What there is outside. Not to be held while something is waited for.
    pub(super) fn scene(&self) -> MutexGuard<'_, Scene> {
        self.scene.lock()
    }

    pub(super) fn clock(&self) -> &Arc<SimulatedClock> {
        &self.clock
    }

    /// Another process of the daemon begins.
    pub(super) fn enter(&self, inside: &Arc<Inside>) {
        *self.inside.lock() = Arc::downgrade(inside);
    }

    fn inside(&self) -> Option<Arc<Inside>> {
        self.inside.lock().upgrade()
    }

    pub(super) fn moment(&self) -> u64 {
        self.scene().moment
    }

    pub(super) fn set_moment(&self, moment: u64) {
        let mut scene = self.scene();
        scene.moment = scene.moment.max(moment);
        self.clock.set(scene.moment);
    }

    /// Lets so much time pass while the daemon waits for an answer.
    async fn let_pass(&self, millis: u64) {
        let end = self.moment() + millis;
        while let Some(next) = self.next_event().filter(|&next| next <= end) {
            self.set_moment(next);
            self.happen_all().await;
        }
        self.set_moment(end);
        if let Some(inside) = self.inside() {
            // What fails here fails for the daemon's own next step, too.
            let _ = inside.work_downloads(self).await;
        }
    }

    /// Sets whether the database may fail, and returns whether they could before.
    pub(super) fn let_database_fail(&self, may_fail: bool) -> bool {
        let inside = self.inside();
        inside.is_some_and(|inside| inside.store.commit_hook().let_fail(may_fail))
    }

    /// When something happens next that does not depend on the daemon.
    pub(super) fn next_event(&self) -> Option<u64> {
        let scene = self.scene();
        let acts = scene.timeline.front().map(|&(at, _)| at);
        let next = [acts, scene.network.next_arrival()];
        next.into_iter().flatten().min()
    }

    /// Everything that happens by now.
    pub(super) async fn happen_all(&self) {
        while let Some(event) = self.take_event() {
            match event {
                Event::Act(act) => self.act(&act),
                Event::Delivery(notification, body) => self.deliver(&notification, body).await,
            }
        }
    }

    fn take_event(&self) -> Option<Event> {
        let mut scene = self.scene();
        let now = scene.moment;
        if let Some((_, act)) = scene.timeline.pop_front_if(|(at, _)| *at <= now) {
            return Some(Event::Act(act));
        }
        let (notification, form) = scene.network.arrive(now)?;
        let body = documents::notification(&scene.source, &notification, form);
        if form != Form::CutShort {
            scene.witness.arriving(&notification);
        }
        Some(Event::Delivery(notification, body))
    }

    async fn deliver(&self, notification: &Notification, body: Vec<u8>) {
        let received = match self.inside() {
            Some(inside) => inside.receive(notification, body).await,
            None => None,
        };
        let mut scene = self.scene();
        scene.witness.arrived();
        if received.is_none_or(|receipt| receipt == Receipt::Full) {
            // It was never acknowledged, and the hub gives up.
            scene.witness.lose(notification);
        }
    }

    /// Something happens now.
    pub(super) fn act(&self, act: &Act) {
        let hook = self.inside();
        let hook = hook.as_ref().map(|inside| inside.store.commit_hook());
        match (act, hook) {
            (&Act::Crash(after), Some(hook)) => hook.stop_after(after),
            (&Act::FailCommit(after), Some(hook)) => hook.fail_after(after),
            (&Act::FailQuery(after), Some(hook)) => hook.fail_query_after(after),
            _ => self.scene().act(act),
        }
    }
}

impl HttpNetwork for Stage {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Response, FetchError>> {
        async move {
            let target = Target::of(request.url());
            if !matches!(target, Some(Target::Resource(_))) {
                let latency = self.scene().latency;
                if latency > 0 {
                    // What happens meanwhile is not the worker's.
                    let could_fail = self.let_database_fail(false);
                    self.let_pass(latency / 2).await;
                    let answer = self.answer(target, &request);
                    self.let_pass(latency - latency / 2).await;
                    self.let_database_fail(could_fail);
                    return answer;
                }
            }
            self.answer(target, &request)
        }
        .boxed()
    }
}

impl Stage {
    fn answer(&self, target: Option<Target>, request: &Request) -> Result<Response, FetchError> {
        let mut scene = self.scene();
        let scene = &mut *scene;
        (scene.moment, request.url()).hash(&mut scene.trace);
        let is_content = matches!(target, Some(Target::Resource(_)));
        let is_package = matches!(target, Some(Target::Package(_, _, PackageForm::Archive)));
        let is_change_list = matches!(
            target,
            Some(
                Target::ChangeList(..)
                    | Target::Package(_, PackageNo::Changes(_), _)
                    | Target::Document(
                        _,
                        SimulatedDocument::ChangeListIndex | SimulatedDocument::ChangeDump
                    )
            )
        );
        let requests = &mut scene.requests;
        requests.contents += u64::from(is_content);
        if is_content {
            scene.last_content = Some(request.url().clone());
        }
        let requests = &mut scene.requests;
        requests.documents += u64::from(!is_content);
        requests.packages += u64::from(is_package);
        requests.change_lists += u64::from(is_change_list);
        let is_down = if is_content {
            scene.contents_down
        } else {
            scene.documents_down
        };
        if is_down {
            return Err(FetchError::Timeout);
        }
        match scene.handwritten.serve(request.url()) {
            Some(Page::Document { body, written }) => {
                let (headers, now) = (request.headers(), scene.moment);
                let answer = documents::serve(&scene.source, body, written, headers, now);
                scene.requests.unchanged += u64::from(answer.status() == 304);
                return Ok(answer.into());
            }
            Some(Page::Pieces { body, length }) => {
                return Ok(documents::serve_piece(&body, length, request.headers()).into());
            }
            Some(Page::Status(status)) => return Ok(documents::status(status).into()),
            None => {}
        }
        let Some(target) = target else {
            return Ok(documents::status(404).into());
        };
        let place = target.place();
        let closed = place.filter(|_| documents::is_closed_list(&scene.source, target));
        let closed = closed.map(|(set, _)| (set, SimulatedDocument::ClosedChangeLists));
        let fault = [place, closed]
            .into_iter()
            .flatten()
            .find_map(|place| scene.faults.get(&place));
        let answer = documents::answer(
            &scene.source,
            target,
            fault.copied(),
            request.headers(),
            scene.moment,
        );
        scene.requests.unchanged += u64::from(!is_content && answer.status() == 304);
        Ok(answer.into())
    }
}

impl Scene {
    pub(super) fn act(&mut self, act: &Act) {
        let moment = self.moment;
        let last = self.source.habits.sets - 1;
        let source = &mut self.source;
        match *act {
            Act::Change(resource) => {
                source.change(moment, resource, false);
            }
            Act::Delete(resource) => {
                if source.content(resource).is_some() {
                    source.change(moment, resource, true);
                }
            }
            Act::Leave(resource, set) => source.leave(moment, resource, set),
            Act::ChangeLate(resource) => {
                source.change(moment, resource, false);
                source.withhold_last(resource);
            }
            Act::DeleteLate(resource) => {
                source.change(moment, resource, true);
                source.withhold_last(resource);
            }
            Act::ListLate(set) => {
                source.list_withheld();
                source.write_change_lists(moment, set.min(last));
            }
            Act::Burst(resource, times) => {
                for _ in 0..times {
                    source.change(moment, resource, false);
                }
            }
            Act::Recreate(resource) => {
                source.change(moment, resource, true);
                source.change(moment, resource, false);
            }
            Act::ChangeAll => {
                for resource in 0..RESOURCES {
                    source.change(moment, resource, false);
                }
            }
            Act::DeleteAll => delete(source, moment, source.resources()),
            Act::DeleteMore => delete(source, moment, RESOURCES..source.resources().end),
            Act::Publish(set, fate) => self.publish(set.min(last), false, fate),
            Act::PublishBare(set) => self.publish(set.min(last), true, Fate::Delivered(20)),
            Act::Framework(set, about, fate) => {
                let capability = match about {
                    SimulatedDocument::CapabilityList => Capability::CapabilityList,
                    SimulatedDocument::ResourceList | SimulatedDocument::Part(_) => {
                        Capability::ResourceList
                    }
                    SimulatedDocument::ChangeListIndex
                    | SimulatedDocument::ChangeLists
                    | SimulatedDocument::ClosedChangeLists => Capability::ChangeList,
                    SimulatedDocument::ResourceDump => Capability::ResourceDump,
                    SimulatedDocument::ChangeDump | SimulatedDocument::Packages => {
                        Capability::ChangeDump
                    }
                };
                let at = source.stamp(moment);
                let notification = Notification {
                    set: set.min(last),
                    content: Content::Framework(capability, at),
                };
                self.network.send(moment, &Arc::new(notification), fate);
            }
            // The caller that lets time pass does that.
            Act::Pass(_) | Act::Crash(_) | Act::FailCommit(_) | Act::FailQuery(_) => {}
            Act::WriteChangeLists(set) => source.write_change_lists(moment, set.min(last)),
            Act::RollOver(set) => source.roll_over(moment, set.min(last)),
            Act::DropOldLists(set) => source.drop_old_lists(moment, set.min(last)),
            Act::WriteResourceList(set) => source.write_resource_list(moment, set.min(last)),
            Act::WriteResourceDump(set) => source.write_resource_dump(moment, set.min(last)),
            Act::RestoreResourceList(set) => source.restore_resource_list(moment, set.min(last)),
            Act::RestoreResourceDump(set) => source.restore_resource_dump(moment, set.min(last)),
            Act::Divide(parts) => {
                source.habits.parts = parts;
                for set in 0..=last {
                    source.write_resource_list(moment, set);
                    source.write_resource_dump(moment, set);
                }
            }
            Act::Documents(available) => self.documents_down = !available,
            Act::Contents(available) => self.contents_down = !available,
            Act::Fail(set, place, fault) => {
                let place = (set.min(last), place);
                match fault {
                    Some(fault) => drop(self.faults.insert(place, fault)),
                    None => drop(self.faults.remove(&place)),
                }
            }
            Act::Offer(set, offered) => source.offer(moment, set.min(last), offered),
            Act::Order(order) => self.orders.push_back(order),
        }
    }

    /// The Source publishes a notification.
    pub(super) fn publish(&mut self, set: SetNo, bare: bool, fate: Fate) {
        let notification = Arc::new(self.source.notification(self.moment, set, bare));
        if matches!(fate, Fate::Lost | Fate::Garbled(_) | Fate::Coalesced(_)) {
            self.witness.lose(&notification);
        }
        self.network.send(self.moment, &notification, fate);
    }

    /// The Source publishes its documents a last time, and everything that failed works again.
    pub(super) fn repair(&mut self) {
        (self.documents_down, self.contents_down) = (false, false);
        self.faults.clear();
        let moment = self.moment;
        for set in 0..self.source.habits.sets {
            self.source
                .offer(moment, set, super::source::Offered::Everything);
        }
    }

    /// Whether the last statement of a moment can be distinguished from an earlier one of the same moment.
    pub(super) fn is_exact(&self) -> bool {
        let habits = &self.source.habits;
        habits.boundary == Boundary::Exact && !habits.undated
    }
}

fn delete(source: &mut Source, moment: u64, resources: Range<ResourceNo>) {
    for resource in resources {
        if source.content(resource).is_some() {
            source.change(moment, resource, true);
        }
    }
}
