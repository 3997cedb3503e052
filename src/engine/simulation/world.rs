//! The world: one clock, and everything that happens by it, in order.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use chrono::DateTime;
use resyncd_core::{Limits, Now};
use tempfile::TempDir;
use tokio::runtime::{Handle, Runtime};

use super::daemon::{Daemon, Filtering, Inside};
use super::documents::Target;
use super::history::Act;
use super::network::Network;
use super::source::{Boundary, EPOCH_SECONDS, EXCLUDED, Habits, RESOURCES, Source};
use super::stage::{Order, Requests, Scene, Stage};
use crate::clock;
use crate::config::{self, Baseline};
use crate::engine::set::worker::Command;
use crate::status::SetStatus;
use crate::store::tests::commit_hook::{Snapshot, TaskSnapshot};
use crate::store::{BaselineState, Store, StoreError, Wake};
use crate::test_clock::SimulatedClock;

/// The Destination's configuration, and what its world is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) limits: Limits,
    pub(super) poll_interval: Duration,
    /// How long a download takes, in milliseconds.
    pub(super) download: u64,
    /// How long a document takes, in milliseconds.
    pub(super) latency: u64,
    pub(super) max_delete: f64,
    /// Whether what only a notification states is used without confirmation.
    pub(super) trusts_hub: bool,
    pub(super) baseline: Baseline,
    /// What else the configuration of the Source states.
    pub(super) configure: fn(&mut config::Source),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits {
                reorder_window: Duration::from_secs(5),
                held_notifications: 1024,
            },
            poll_interval: Duration::from_secs(900),
            download: 300,
            latency: 0,
            max_delete: 0.1,
            trusts_hub: true,
            baseline: Baseline::Auto,
            configure: |_| {},
        }
    }
}

/// When the Source begins, so that there is time before it.
const BEGINNING: u64 = 100_000;

pub(super) struct World {
    pub(super) stage: Arc<Stage>,
    store: Arc<Store>,
    daemon: Option<Daemon>,
    settings: Settings,
    filtering: Filtering,
    // Removed last.
    folder: TempDir,
}

struct Machine {
    clock: Arc<SimulatedClock>,
    runtime: Runtime,
}

thread_local! {
    static MACHINE: RefCell<Option<Arc<Machine>>> = const { RefCell::new(None) };
}

fn machine() -> Arc<Machine> {
    let make = || {
        let base = Now {
            wall: DateTime::from_timestamp(EPOCH_SECONDS, 0).unwrap(),
            mono: clock::now().mono,
        };
        let clock = SimulatedClock::new(base);
        let of_threads = Arc::clone(&clock);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .on_thread_start(move || of_threads.install())
            .build()
            .unwrap();
        Arc::new(Machine { clock, runtime })
    };
    MACHINE.with_borrow_mut(|machine| Arc::clone(machine.get_or_insert_with(make)))
}

/// Runs something in a world of its own.
pub(super) fn simulate<T>(
    habits: Habits,
    settings: Settings,
    run: impl AsyncFnOnce(&mut World) -> T,
) -> T {
    let machine = machine();
    let clock = Arc::clone(&machine.clock);
    machine.runtime.block_on(async {
        clock.install();
        let mut world = World::new(clock, habits, settings).await;
        run(&mut world).await
    })
}

/// An empty database, so that its tables need not be made for each world.
fn empty_database() -> &'static [u8] {
    static EMPTY: OnceLock<Vec<u8>> = OnceLock::new();
    EMPTY.get_or_init(|| {
        let folder = TempDir::new().unwrap();
        drop(Store::open(folder.path()).unwrap());
        std::fs::read(folder.path().join("resyncd.db")).unwrap()
    })
}

/// What else of the daemon works while a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// A document that is fetched ahead arrives before anything else happens.
    EarlyDocument,
    /// The executor has the members of a package.
    Executor,
}

/// What a worker waits for that was polled just now. It is polled together with the worker.
fn waits_for(inside: &Inside) -> Poll<WaitsFor> {
    let context = &inside.context;
    if spawned_tasks() > 0 {
        Poll::Ready(WaitsFor::EarlyDocument)
    } else if context.counters.waits() > 1 {
        // One is that of the package.
        Poll::Ready(WaitsFor::Executor)
    } else {
        Poll::Pending
    }
}

fn spawned_tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

/// Lets a worker work. While it waits for the members of a package, the executor works, and where nothing is due for the executor, time
/// passes.
async fn work_with_executor<T>(
    stage: &Stage,
    inside: &Inside,
    working: impl Future<Output = T>,
) -> Result<T, StoreError> {
    let mut working = std::pin::pin!(working);
    let mut rounds = 0;
    loop {
        let waits_for = std::future::poll_fn(|_| waits_for(inside));
        let waits_for = tokio::select! {
            biased;
            worked = &mut working => return Ok(worked),
            waits_for = waits_for => waits_for,
        };
        // Only what a worker asks of the database may fail.
        let could_fail = stage.let_database_fail(false);
        if waits_for == WaitsFor::EarlyDocument {
            while spawned_tasks() > 0 {
                tokio::task::yield_now().await;
            }
            stage.let_database_fail(could_fail);
            continue;
        }
        let mut wakes = inside.store.wakes();
        let mut have_tasks_changed = || {
            let wakes = std::iter::from_fn(|| wakes.try_recv().ok());
            wakes.filter(|wake| matches!(wake, Wake::Tasks(_))).count() > 0
        };
        loop {
            rounds += 1;
            assert!(rounds < 10_000, "the members of a package are never tried");
            inside.work_downloads(stage).await?;
            if have_tasks_changed() {
                break;
            }
            if inside.store.commit_hook().is_stopped() {
                return Err(StoreError::Closed);
            }
            let downloads = inside.downloads.lock().await.next_event();
            let next = downloads.into_iter().chain(stage.next_event()).min();
            stage.set_moment(next.expect("what is waited for happens"));
            stage.happen_all().await;
        }
        stage.let_database_fail(could_fail);
    }
}

impl World {
    async fn new(clock: Arc<SimulatedClock>, habits: Habits, settings: Settings) -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        };
        let folder = folder.unwrap();
        std::fs::write(folder.path().join("resyncd.db"), empty_database()).unwrap();
        let faulty = habits.faulty_first;
        let scene = Scene {
            moment: BEGINNING,
            source: Source::new(habits, BEGINNING),
            network: Network::default(),
            timeline: Default::default(),
            documents_down: false,
            contents_down: false,
            faults: faulty
                .into_iter()
                .map(|(place, fault)| ((0, place), fault))
                .collect(),
            handwritten: Default::default(),
            latency: settings.latency,
            trusts_hub: settings.trusts_hub,
            orders: Default::default(),
            requests: Requests::default(),
            last_content: None,
            files: Default::default(),
            witness: Default::default(),
            broken: None,
            trace: Default::default(),
        };
        let stage = Stage::new(scene, clock);
        let store = Store::open_hooked(folder.path()).unwrap();
        let watching = Arc::downgrade(&stage);
        store.commit_hook().watch(move |database| {
            if let Some(stage) = watching.upgrade() {
                stage.scene().check(database);
            }
        });
        let mut world = Self {
            stage,
            store,
            daemon: None,
            settings,
            filtering: Filtering::Nothing,
            folder,
        };
        world.start().await;
        world
    }

    /// The daemon begins with what it has committed.
    async fn start(&mut self) {
        loop {
            // The one before is gone with all that it had in memory.
            self.daemon = None;
            let started = Daemon::start(
                &self.stage,
                &self.store,
                self.folder.path(),
                &self.settings,
                self.filtering,
            );
            match started.await {
                Ok(daemon) => {
                    self.daemon = Some(daemon);
                    return;
                }
                Err(error) => assert!(self.has_crashed(), "{error}"),
            }
            self.resume();
        }
    }

    fn has_crashed(&self) -> bool {
        self.store.commit_hook().is_stopped()
    }

    fn resume(&mut self) {
        self.stage.scene().requests.crashes += 1;
        self.store.commit_hook().resume();
    }

    /// Something happens now.
    pub(super) fn act(&mut self, act: &Act) {
        self.stage.act(act);
    }

    /// Lets so many milliseconds pass; everything that is due by then happens in its turn.
    pub(super) async fn pass(&mut self, millis: u64) {
        let end = self.moment() + millis;
        let mut busy = 0;
        loop {
            self.work().await;
            let next = self.next_event().await;
            if next > end {
                break;
            }
            busy = if next <= self.moment() { busy + 1 } else { 0 };
            assert!(busy < 10_000, "the daemon works without end");
            self.stage.set_moment(next);
        }
        self.stage.set_moment(end);
    }

    pub(super) fn moment(&self) -> u64 {
        self.stage.moment()
    }

    /// How many steps the store has taken.
    pub(super) fn steps(&self) -> u64 {
        self.store.commit_hook().steps()
    }

    /// Equal for a history that is run again.
    pub(super) async fn trace(&self) -> u64 {
        let database = format!("{:?}", self.database().await);
        let mut trace = self.stage.scene().trace.clone();
        (self.moment(), self.steps(), database).hash(&mut trace);
        trace.finish()
    }

    pub(super) fn requests(&self) -> Requests {
        self.stage.scene().requests
    }

    async fn next_event(&self) -> u64 {
        let of_daemon = match &self.daemon {
            Some(daemon) => daemon.next_event(&self.stage).await,
            None => 0,
        };
        let outside = self.stage.next_event();
        outside.map_or(of_daemon, |outside| outside.min(of_daemon))
    }

    /// Everything that is due at this moment.
    async fn work(&mut self) {
        self.stage.happen_all().await;
        let order = self.stage.scene().orders.pop_front();
        if let Some(order) = order {
            self.obey(order).await;
        }
        if let Err(error) = self.work_daemon().await {
            assert!(self.has_crashed(), "{error}");
        }
        if self.has_crashed() {
            self.resume();
            self.start().await;
        }
        self.keeps_its_promises();
    }

    async fn work_daemon(&mut self) -> Result<(), crate::engine::EngineError> {
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        daemon.wake().await;
        daemon.discover(self.stage.moment()).await?;
        for worker in &mut daemon.workers {
            if worker.next_event(&self.stage) > self.stage.moment() {
                continue;
            }
            worker.is_awake = false;
            self.stage.let_database_fail(true);
            let failures = self.store.commit_hook().failures();
            let deliveries = self.stage.scene().witness.deliveries();
            // The futures around it would hold it by value, and the stack of a test is small.
            let working = Box::pin(worker.worker.work_now());
            let working = work_with_executor(&self.stage, &daemon.inside, working);
            let worked = working.await;
            self.stage.let_database_fail(false);
            let pause = worked?;
            if self.store.commit_hook().is_stopped() {
                return Ok(());
            }
            // An error of the database ends the work, and is not taken for one of a document. But deliveries that could not be
            // committed together are then tried one by one.
            let has_failed = self.store.commit_hook().failures() > failures;
            let has_deliveries =
                deliveries.0 > 0 || deliveries != self.stage.scene().witness.deliveries();
            assert!(
                !has_failed || has_deliveries || pause.is_some(),
                "a database error is passed over"
            );
            if let Some(pause) = pause {
                let pause = u64::try_from(pause.as_millis()).unwrap();
                self.stage.scene().requests.crashes += 1;
                worker.is_awake = true;
                worker.paused_until = self.stage.moment() + pause;
                continue;
            }
            // A flood of early notifications becomes a gap, and not memory.
            let held = worker.worker.state.sequencer.held();
            let most = self.settings.limits.held_notifications;
            assert!(held <= most, "{held} are held");
        }
        daemon.inside.work_downloads(&self.stage).await?;
        daemon.wake().await;
        Ok(())
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Poll(set) => {
                for worker in self
                    .daemon
                    .iter_mut()
                    .flat_map(|daemon| &mut daemon.workers)
                {
                    if worker.set == set {
                        worker.worker.handle_command(Command::Poll);
                    }
                }
            }
            Order::Approve => {
                // A process that ends meanwhile has not answered.
                let _ = self.store.approve_deletions(super::daemon::NAME).await;
            }
            Order::Verify(set) => {
                if let Some(daemon) = &self.daemon {
                    daemon.inside.verify(set).await;
                }
            }
            Order::Restart { filtering } => {
                self.filtering = filtering;
                let excludes = filtering != Filtering::Nothing;
                self.stage.scene().witness.restarting(excludes);
                self.start().await;
            }
        }
    }

    /// Runs each set once, in place of the daemon, which begins again afterwards.
    pub(super) async fn run_once(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            for worker in daemon.workers {
                let working = worker.worker.catch_up();
                let worked = work_with_executor(&self.stage, &daemon.inside, working);
                worked.await.unwrap();
                daemon.inside.work_downloads(&self.stage).await.unwrap();
            }
        }
        self.keeps_its_promises();
        self.start().await;
    }

    fn keeps_its_promises(&self) {
        let broken = self.stage.scene().broken.take();
        if let Some(broken) = broken {
            panic!("{broken}");
        }
    }

    pub(super) async fn database(&self) -> Snapshot {
        self.store.snapshot().await.unwrap()
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// A notification of a set is missed that came over a transport without intervals.
    pub(super) async fn miss(&self, set: usize) {
        let daemon = self.daemon.as_ref().unwrap();
        daemon.inside.miss(set).await;
    }

    pub(super) async fn is_subscribed(&self, set: usize) -> bool {
        let daemon = self.daemon.as_ref().unwrap();
        daemon.inside.is_subscribed(set).await
    }

    /// How many files there are of packages that are being read, or were.
    pub(super) fn package_files(&self) -> usize {
        let daemon = self.daemon.as_ref().unwrap();
        let folder = daemon.inside.stepper.mirror().package_folder().unwrap();
        std::fs::read_dir(folder).unwrap().count()
    }

    pub(super) async fn status(&self) -> Vec<SetStatus> {
        let daemon = self.daemon.as_ref().unwrap();
        daemon.inside.status().await.unwrap()
    }

    /// How many versions of resources are to be stored.
    pub(super) async fn versions_to_store(&self) -> u64 {
        let daemon = self.daemon.as_ref().unwrap();
        daemon.inside.versions_to_store().await.unwrap_or_default()
    }

    /// The Source publishes its documents a last time, and everything that failed works again. Then the mirror must become
    /// equal to the Source.
    pub(super) async fn settle(&mut self, with_resource_list: bool, rest: u64) {
        self.pass(2000).await;
        self.stage.scene().repair();
        // Not promised: where documents list changes of a moment that is not over, or state no time, the last statement is not
        // known as such before there is a later one. So the last change has a moment of its own.
        let is_exact = self.stage.scene().source.habits.boundary == Boundary::Exact;
        let is_undated = self.stage.scene().source.habits.undated;
        if !is_exact || is_undated {
            self.pass(60_000).await;
            {
                let mut scene = self.stage.scene();
                let moment = scene.moment;
                for resource in 0..RESOURCES {
                    let delete = resource == 4 && !is_undated;
                    scene.source.change(moment, resource, delete);
                }
            }
            self.pass(2000).await;
        }
        {
            let mut scene = self.stage.scene();
            let moment = scene.moment;
            for set in 0..scene.source.habits.sets {
                scene.source.write_change_lists(moment, set);
                if with_resource_list || is_undated {
                    scene.source.write_resource_list(moment, set);
                    scene.source.write_resource_dump(moment, set);
                }
            }
        }
        // Not promised: a gap after which nothing has changed is closed by the next document, if there is one.
        let may_have_gap = !(with_resource_list || is_undated);
        let end = self.moment() + rest;
        let step = u64::try_from(self.settings.poll_interval.as_millis()).unwrap();
        // Twice, with a poll between them: what is announced last may have been fetched already, and is fetched again.
        let (mut times, mut rounds, mut has_stated) = (0, 0, false);
        loop {
            let reason = self.unsettled(may_have_gap).await;
            times = if reason.is_none() { times + 1 } else { 0 };
            if times == 2 {
                return;
            }
            if let Some(reason) = reason
                && self.moment() >= end
            {
                let database = self.database().await;
                panic!("{reason}: {}", self.stage.scene().describe(&database));
            }
            // Not promised: a notification without an interval is applied completely, whenever that happens. A resource that it
            // announces, and that was deleted before the baseline, can't be fetched, until the resource changes or another
            // Resource List is read. Without times it may undo what the baseline has, likewise. A change before the baseline would
            // not help: the notifications that wait for it are applied after it.
            rounds += 1;
            if rounds >= 4 && !has_stated && self.requests().hints > 0 && self.is_caught_up().await
            {
                self.state_all();
                has_stated = true;
            }
            self.pass(step).await;
            self.act(&Act::Order(Order::Approve));
        }
    }

    /// Whether every set has a baseline, and no notification waits.
    async fn is_caught_up(&self) -> bool {
        let database = self.database().await;
        let mut sets = database.sets.iter();
        database.inbox.is_empty() && sets.all(|set| set.baseline != BaselineState::Missing)
    }

    /// The Source creates what it does not have, and states so; without times it changes everything, because an older statement
    /// may have been applied last.
    fn state_all(&self) {
        let mut scene = self.stage.scene();
        let (moment, source) = (scene.moment, &mut scene.source);
        for resource in 0..RESOURCES {
            if source.content(resource).is_none() || source.habits.undated {
                source.change(moment - 1000, resource, false);
            }
        }
        for set in 0..source.habits.sets {
            source.write_change_lists(moment, set);
            source.write_resource_list(moment, set);
            source.write_resource_dump(moment, set);
        }
    }

    /// Why the mirror is not what the Source is, and known to be.
    pub(super) async fn unsettled(&self, may_have_gap: bool) -> Option<String> {
        let database = self.database().await;
        {
            let scene = self.stage.scene();
            let differing = scene.differing();
            if !differing.is_empty() {
                return Some(format!("{differing:?} differ"));
            }
            // An update that is not selected waits until it is.
            let waits = |task: &TaskSnapshot| {
                let is_excluded = Target::resource(&task.uri) == EXCLUDED;
                self.filtering == Filtering::Select && is_excluded && task.state == "rejected"
            };
            if !database.tasks.iter().all(waits) {
                return Some("tasks are left".to_owned());
            }
            if !database.inbox.is_empty() {
                return Some("notifications are left".to_owned());
            }
            if scene.network.next_arrival().is_some() || !scene.timeline.is_empty() {
                return Some("something is still to come".to_owned());
            }
        }
        let Some(daemon) = &self.daemon else {
            return Some("there is no daemon".to_owned());
        };
        let Ok(status) = daemon.inside.status().await else {
            return Some("there is no status".to_owned());
        };
        let mut others = status.iter().filter(|set| {
            let is_gap = set.state == "gap" && set.error.is_none();
            set.state != "in-sync" && !(is_gap && may_have_gap)
        });
        if let Some(set) = others.next() {
            return Some(format!(
                "{} is {}: {:?}",
                set.capability_list, set.state, set.error
            ));
        }
        let sets = self.stage.scene().source.habits.sets;
        (status.len() != sets).then(|| format!("{} sets are followed", status.len()))
    }
}
