//! A simulation of real endpoints.

use crate::busy::Busy;
use crate::config::{LinkKind, SimConfig};
use crate::link::{endpoint_id, SimLink};
use crate::network::{Network, SharedNetwork};
use crate::runner::{Host, HostEnv, Outcome, Runner, Task};
use crate::served::{ServedLink, SharedAgent};

use crate::trace::Trace;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::time::Duration;
use weft::group::Directory;
use weft::{Clock, Config, Endpoint, Group};
use weft_core::config::Table;
use weft_core::{Instant, PeerId};
use weft_link::rng::Rng;
use weft_link::{Address, Link};
use weft_packets::net::{Compute, Live};
use weft_packets::{OpenError, Packets, Settings};

/// The programs' notes about their next step, by host.
type Notes = Rc<RefCell<BTreeMap<u32, String>>>;

/// A failed simulation, with the data to repeat it.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Name of the scenario, as `weft sim` knows it.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// The failure.
    pub what: String,
    /// The command that repeats it.
    pub replay: String,
    /// Its packets, up to [`SimConfig::trace`].
    pub trace: Box<Trace>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        write!(f, "seed {}; replay: {}", self.seed, self.replay)
    }
}

/// Makes a simulation of a test: see [`Sim::of_test`].
#[macro_export]
macro_rules! test_sim {
    ($name:expr, $config:expr) => {
        $crate::Sim::new($name, $config)
            .of_test(::core::env!("CARGO_PKG_NAME"), ::core::env!("CARGO_CRATE_NAME"))
    };
}

impl Failure {
    /// Converts it to the failure of a test's own simulation: see [`Sim::of_test`].
    #[must_use]
    pub fn of_test(self, package: &str, file: &str) -> Failure {
        Failure { replay: test_command(package, file), ..self }
    }
}

/// Returns the command that runs a seed of a scenario again.
pub(crate) fn scenario_command(name: &str, seed: u64) -> String {
    format!("weft sim {name} --seed {seed}")
}

/// Returns the command that runs the test of this thread again, if the thread has a name.
fn test_command(package: &str, file: &str) -> String {
    let all = format!("cargo test -p {package} --test {file}");
    match std::thread::current().name() {
        Some(test) if test != "main" => format!("{all} -- --exact {test}"),
        _ => all,
    }
}

impl std::error::Error for Failure {}

/// The environment of a simulated program.
#[derive(Clone)]
pub struct Env {
    /// Its endpoint.
    pub endpoint: Endpoint,
    /// Number of its host.
    pub host: u32,
    /// Number of hosts.
    pub hosts: u32,
    /// 0, and one more at each restart.
    pub incarnation: u32,
    packets: Settings,
    seed: u64,
    notes: Notes,
    left: Rc<Cell<bool>>,
    busy: Rc<Busy>,
    world: Rc<OnceCell<Group>>,
}

/// Returns the address of an incarnation of a host: known beforehand, as from a launcher.
pub fn address_of(seed: u64, host: u32, incarnation: u32) -> Address {
    Address {
        endpoint: endpoint_id(seed, host, incarnation),
        sim: Some(host),
        ..Address::default()
    }
}

/// The first incarnations of all hosts.
struct AddressBook {
    seed: u64,
    hosts: u32,
}

impl AddressBook {
    /// Returns the number of neighbouring ranks whose addresses name one host, so that operations
    /// of groups treat them as such; their packets cross the network all the same.
    fn together(&self) -> u64 {
        self.seed % 4 + 1
    }
}

impl Directory for AddressBook {
    fn size(&self) -> usize {
        self.hosts as usize
    }

    fn address(&self, rank: usize) -> Result<Address, String> {
        let host = u32::try_from(rank).ok().filter(|&h| h < self.hosts);
        let host = host.ok_or_else(|| format!("there is no host {rank}"))?;
        let mark = u64::from(host) / self.together() + 1;
        Ok(Address { host: mark, ..address_of(self.seed, host, 0) })
    }
}

impl Env {
    /// Returns the packet interface of this program's endpoint.
    ///
    /// # Errors
    /// The endpoint's configuration chooses an agent, and none serves it.
    pub fn packets(&self) -> Result<Packets, OpenError> {
        Packets::with_settings(&self.endpoint, &self.packets)
    }

    /// Returns the packet interface of this program as the trait that models use; the rank of each
    /// host is its number.
    ///
    /// # Errors
    /// Returns the errors of [`packets`](Env::packets).
    pub fn net(&self) -> Result<Live, OpenError> {
        let (busy, endpoint) = (Rc::clone(&self.busy), self.endpoint.clone());
        let compute: Compute = Rc::new(move |time| {
            let (busy, until) = (Rc::clone(&busy), endpoint.now() + time);
            Box::pin(async move { busy.compute(until).await })
        });
        Live::with_packets(&self.world(), self.packets()?, Some(compute))
    }

    /// Returns the peer that is the first incarnation of `host`.
    pub fn peer(&self, host: u32) -> PeerId {
        self.peer_incarnation(host, 0)
    }

    /// Returns the peer that is the given incarnation of `host`.
    pub fn peer_incarnation(&self, host: u32, incarnation: u32) -> PeerId {
        let address = address_of(self.seed, host, incarnation);
        self.endpoint.connect(&address).expect("every simulated host has an address")
    }

    /// Returns the group of all hosts, the same one each time; the rank of each is its number.
    pub fn world(&self) -> Group {
        let make = || {
            let book = AddressBook { seed: self.seed, hosts: self.hosts };
            Group::new(self.endpoint.clone(), book, self.host as usize)
        };
        self.world.get_or_init(make).clone()
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Instant {
        self.endpoint.now()
    }

    /// Waits in virtual time.
    pub async fn sleep(&self, ns: u64) {
        self.endpoint.sleep(Duration::from_nanos(ns)).await;
    }

    /// Computes without progress on the endpoint: only the host's agent, if it has one, goes on.
    pub async fn compute(&self, ns: u64) {
        self.busy.compute(self.now() + Duration::from_nanos(ns)).await;
    }

    /// Returns a random generator of this host and incarnation alone.
    pub fn rng(&self) -> Rng {
        Rng::stream(endpoint_id(self.seed, self.host, self.incarnation).0, 3)
    }

    /// Ends the program's process: from now on its host answers nothing, as one whose memory is
    /// gone. Without this call the endpoint of a finished program goes on answering.
    pub fn leave(&self) {
        self.left.set(true);
    }

    /// Notes the program's next step, for the report of a deadlock.
    pub fn note(&self, what: impl Into<String>) {
        self.notes.borrow_mut().insert(self.host, what.into());
    }
}

/// An endpoint in the form that the runner drives.
struct Machine {
    endpoint: Endpoint,
    agent: Option<SharedAgent>,
    host: u32,
    notes: Notes,
    /// True if its process has ended.
    left: Rc<Cell<bool>>,
    busy: Rc<Busy>,
}

impl Machine {
    /// Returns the end of the period in which only its agent goes on.
    fn still_until(&self) -> Option<Instant> {
        self.agent.as_ref()?.borrow().rank_still_until()
    }
}

impl Host for Machine {
    fn progress(&mut self) -> bool {
        if self.left.get() {
            return false;
        }
        if self.busy.is_busy(self.endpoint.now()) || self.still_until().is_some() {
            return self.agent.as_ref().is_some_and(|agent| agent.borrow_mut().progress());
        }
        let did = self.endpoint.progress();
        if did {
            self.endpoint.check();
        }
        did
    }

    fn next_timeout(&self) -> Option<Instant> {
        if self.left.get() {
            return None;
        }
        let agent = self.agent.as_ref().and_then(|agent| agent.borrow().next_timeout());
        let still = self.still_until().or(self.busy.until());
        let rank = still.or_else(|| self.endpoint.waiting().next_timeout());
        let rank = rank.filter(|&at| at != Instant::FAR);
        rank.into_iter().chain(agent).min()
    }

    fn describe(&self) -> String {
        self.notes.borrow().get(&self.host).cloned().unwrap_or_default()
    }
}

/// Endpoints and their programs on a simulated network.
pub struct Sim {
    name: String,
    config: SimConfig,
    settings: Config,
    packets: Settings,
    net: SharedNetwork,
    runner: Runner<Machine>,
    notes: Notes,
    replay: String,
}

impl Sim {
    /// Creates a simulation of `config`; `name` is its name in `weft sim`.
    pub fn new(name: impl Into<String>, config: SimConfig) -> Sim {
        weft_link::telling::hosts_are_simulated();
        let net = Network::shared(config.clone());
        let runner = Runner::new(&net);
        let notes = Notes::default();
        let name = name.into();
        let replay = scenario_command(&name, config.seed);
        let (settings, packets) = (Config::default(), Settings::default());
        Sim { name, config, settings, packets, net, runner, notes, replay }
            .settings(Config::default())
    }

    /// Marks the simulation as one of a test of `file` in `package`, not of a command: a failure
    /// prints the command that runs the test again. `cargo` has both names as `CARGO_PKG_NAME` and
    /// `CARGO_CRATE_NAME`.
    #[must_use]
    pub fn of_test(mut self, package: &str, file: &str) -> Sim {
        self.replay = test_command(package, file);
        self
    }

    /// Sets the command that runs the simulation again, which a failure prints.
    pub fn replayed_by(mut self, command: String) -> Sim {
        self.replay = command;
        self
    }

    /// Sets the settings of the endpoints spawned from now on; [`SimConfig::settings`] override
    /// them.
    ///
    /// # Panics
    /// [`SimConfig::settings`] has a key or value that does not exist.
    pub fn settings(mut self, mut settings: Config) -> Sim {
        for (key, value) in &self.config.settings {
            let set = match Settings::KEYS.iter().any(|known| known.name == *key) {
                true => self.packets.set(key, value),
                false => settings.set(key, value),
            };
            set.unwrap_or_else(|e| panic!("{e}"));
        }
        self.settings = settings;
        self
    }

    /// Sets the settings of the packet interfaces of hosts spawned from now on.
    #[must_use]
    pub fn packets(mut self, settings: Settings) -> Sim {
        self.packets = settings;
        self
    }

    /// Returns the network, with counters and trace.
    pub fn network(&self) -> &SharedNetwork {
        &self.net
    }

    /// Gives `host` its program, which is called again at a restart.
    pub fn spawn<F, Fut>(&mut self, host: u32, program: F)
    where
        F: Fn(Env) -> Fut + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        let (seed, hosts) = (self.config.seed, self.config.hosts);
        let (settings, notes) = (self.settings.clone(), Notes::clone(&self.notes));
        let packets = self.packets.clone();
        let served = self.config.served && self.config.kind == LinkKind::Network;
        let start = move |at: &HostEnv| -> (Machine, Task) {
            let &HostEnv { host, incarnation, .. } = at;
            let me = endpoint_id(seed, host, incarnation);
            let (mut links, mut agent): (Vec<Box<dyn Link>>, _) = (Vec::new(), None);
            let mut services = None;
            if served {
                let link = SimLink::new(&at.net, host, &at.clock);
                let link = ServedLink::new(link, &at.clock, me, settings.clone());
                (agent, services) = (Some(link.agent()), Some(link.services()));
                links.push(Box::new(link));
            } else {
                let all = SimLink::all(&at.net, host, &at.clock).into_iter();
                links.extend(all.map(|link| Box::new(link) as Box<dyn Link>));
            }
            let endpoint =
                Endpoint::with_links(settings.clone(), me, Clock::Virtual(at.clock.cell()), links);
            services.into_iter().for_each(|services| endpoint.agent().serve(services));
            let (notes, left) = (Notes::clone(&notes), Rc::new(Cell::new(false)));
            let busy = Rc::<Busy>::default();
            let machine = Machine {
                endpoint: endpoint.clone(),
                agent,
                host,
                notes: Notes::clone(&notes),
                left: Rc::clone(&left),
                busy: Rc::clone(&busy),
            };
            let packets = packets.clone();
            let world = Rc::default();
            let env =
                Env { endpoint, host, hosts, incarnation, packets, seed, notes, left, busy, world };
            (machine, Box::pin(program(env)))
        };
        self.runner.spawn(host, Box::new(start));
    }

    /// Gives every host the same program.
    pub fn spawn_all<F, Fut>(&mut self, program: F)
    where
        F: Fn(Env) -> Fut + Clone + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        (0..self.config.hosts).for_each(|host| self.spawn(host, program.clone()));
    }

    /// Runs until every program has finished or its host has died. A program's panic is a failure
    /// like any other: the endpoints of this simulation are not used after it.
    pub fn run(&mut self) -> Result<Outcome, Failure> {
        let what = match catch_unwind(AssertUnwindSafe(|| self.runner.run())) {
            Ok(Ok(outcome)) => return Ok(outcome),
            Ok(Err(error)) => error.to_string(),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                format!("panic: {}", text.unwrap_or("without a text"))
            }
        };
        Err(self.failure(what))
    }

    /// Runs a program on every host, and returns the results in the order of the hosts. The
    /// endpoint of a host that has its result goes on answering.
    ///
    /// # Errors
    /// Returns the errors of [`run`](Sim::run); or a host died before its result.
    pub fn results<T, F, Fut>(&mut self, program: F) -> Result<Vec<T>, Failure>
    where
        T: 'static,
        F: Fn(Env) -> Fut + Clone + 'static,
        Fut: Future<Output = T> + 'static,
    {
        let all: Rc<RefCell<BTreeMap<u32, T>>> = Rc::default();
        let shared = Rc::clone(&all);
        self.spawn_all(move |env| {
            let (all, host, work) = (Rc::clone(&shared), env.host, program(env));
            async move {
                let result = work.await;
                all.borrow_mut().insert(host, result);
            }
        });
        self.run()?;
        let all = all.take();
        match (0..self.config.hosts).find(|host| !all.contains_key(host)) {
            Some(host) => Err(self.failure(format!("host {host} has no result"))),
            None => Ok(all.into_values().collect()),
        }
    }

    /// Runs a program over the models on every host, in a test, and returns the outcomes in the
    /// order of the hosts.
    ///
    /// # Panics
    /// The simulation or a program failed, or an agent is chosen.
    pub fn outcomes<P, T, E, F, Fut>(mut self, params: &P, program: F) -> Vec<T>
    where
        P: Clone + 'static,
        T: 'static,
        E: fmt::Debug,
        F: Fn(Live, Rc<P>) -> Fut + Clone + 'static,
        Fut: Future<Output = Result<T, E>> + 'static,
    {
        let params = Rc::new(params.clone());
        let all = self.results(move |env| {
            let net = env.net().expect("no agent is chosen");
            let run = program(net, Rc::clone(&params));
            async move { run.await.expect("no rank fails") }
        });
        all.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Makes a failure of this simulation.
    pub fn failure(&self, what: String) -> Failure {
        let trace = Box::new(self.net.borrow().trace().clone());
        let (name, replay) = (self.name.clone(), self.replay.clone());
        Failure { name, seed: self.config.seed, what, replay, trace }
    }
}
