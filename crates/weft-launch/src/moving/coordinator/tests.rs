//! Moves between two hosts and a launcher, with every step delayed, refused, cancelled, or ended by
//! the death of a host, as seeds have it.
#![allow(non_snake_case)]

use super::*;
use weft_link::rng::Rng;

/// The rank's process, or its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    /// There is none, or it was killed.
    None,
    /// The process has packet numbers, and runs.
    Runs,
    /// The links of the process are closed.
    Still,
}

/// A host's part of the launcher, and what runs there.
#[derive(Debug)]
struct Host {
    process: Process,
    alive: bool,
    /// The move for which there is room.
    taking: Option<u32>,
    orders: VecDeque<(u32, ToHost)>,
    words: VecDeque<(u32, FromHost)>,
    /// The host has told the launcher of its own end: the connection is closed.
    lost: bool,
}

impl Host {
    fn new(process: Process) -> Host {
        let (orders, words) = (VecDeque::new(), VecDeque::new());
        Host { process, alive: true, taking: None, orders, words, lost: false }
    }
}

struct World {
    rng: Rng,
    now: Duration,
    hosts: [Host; 2],
    coordinator: Coordinator,
    /// The host where the rank runs, as the launcher has it.
    at: usize,
    /// All runs that were ever granted.
    granted: Vec<Range<u64>>,
    outcome: Option<Outcome>,
}

impl World {
    fn new(seed: u64) -> World {
        let coordinator = Coordinator::new(4);
        let granted = std::iter::once(0..coordinator.each).collect();
        World {
            rng: Rng::new(seed),
            now: Duration::ZERO,
            hosts: [Host::new(Process::Runs), Host::new(Process::None)],
            coordinator,
            at: 0,
            granted,
            outcome: None,
        }
    }

    fn say(&mut self, host: usize, number: u32, word: FromHost) {
        self.hosts[host].words.push_back((number, word));
    }

    fn run(&mut self, runs: Range<u64>) {
        let twice = self.granted.iter().any(|old| old.start < runs.end && runs.start < old.end);
        assert!(!twice, "packet numbers {runs:?} twice");
        self.granted.push(runs);
    }

    /// A host obeys its next order; some orders fail.
    fn obey(&mut self, host: usize) {
        let Some((number, order)) = self.hosts[host].orders.pop_front() else { return };
        let fails = self.rng.chance(40_000);
        let process = self.hosts[host].process;
        match order {
            _ if fails
                && !matches!(order, ToHost::Drop | ToHost::Go { .. } | ToHost::Resume { .. }) =>
            {
                self.say(host, number, FromHost::Failed { why: "it fails".into() });
            }
            ToHost::Take => {
                self.hosts[host].taking = Some(number);
                self.say(host, number, FromHost::Taking { place: "there".into() });
            }
            ToHost::Give { .. } => {
                assert_eq!(process, Process::Runs);
                self.hosts[host].process = Process::Still;
                self.say(host, number, FromHost::Held);
                if self.rng.chance(40_000) {
                    return self.say(host, number, FromHost::Failed { why: "no copy".into() });
                }
                self.say(host, number, FromHost::Copied { bytes: 7 });
                // The copy arrives.
                let other = 1 - host;
                let arrives = self.hosts[other].taking == Some(number) && self.hosts[other].alive;
                if arrives && !self.rng.chance(40_000) {
                    self.hosts[other].process = Process::Still;
                    self.say(other, number, FromHost::Stands);
                }
            }
            ToHost::End => {
                assert_eq!(process, Process::Still, "only what stands still is killed");
                self.hosts[host].process = Process::None;
                self.say(host, number, FromHost::Dead);
            }
            ToHost::Resume { runs } | ToHost::Go { runs } => {
                if process == Process::None {
                    return self.say(host, number, FromHost::Broken { why: "no process".into() });
                }
                self.run(runs);
                self.hosts[host].process = Process::Runs;
                self.say(host, number, FromHost::Went { untold: 0 });
            }
            ToHost::Drop => {
                self.hosts[host].taking = None;
                if process != Process::Runs {
                    self.hosts[host].process = Process::None;
                }
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.coordinator.poll() {
            match action {
                Action::Say { host, number, order, .. } if self.hosts[host].alive => {
                    self.hosts[host].orders.push_back((number, order));
                }
                Action::Say { .. } | Action::Began(_) => {}
                Action::Over(outcome) => {
                    assert!(self.outcome.replace(outcome).is_none(), "over twice");
                }
            }
        }
    }

    /// One step of the world, which the seed chooses.
    fn step(&mut self, deaths: u32, cancels: u32) {
        self.now += Duration::from_millis(1 + self.rng.below(400));
        let host = self.rng.below(2) as usize;
        match self.rng.below(10) {
            0..=4 => self.obey(host),
            5..=8 => {
                if let Some((number, word)) = self.hosts[host].words.pop_front() {
                    self.coordinator.handle(self.now, host, number, word);
                } else if !self.hosts[host].alive && !self.hosts[host].lost {
                    // The words that it said before its end come first.
                    self.hosts[host].lost = true;
                    self.coordinator.lost(self.now, host);
                }
            }
            _ if self.rng.chance(deaths) => {
                // Its processes end with it.
                let dead = &mut self.hosts[host];
                (dead.alive, dead.process) = (false, Process::None);
                dead.orders.clear();
            }
            _ if self.rng.chance(cancels) => _ = self.coordinator.cancel(self.now),
            _ => self.coordinator.handle_timeout(self.now),
        }
        self.act();
        let running = self.hosts.iter().filter(|host| host.process == Process::Runs).count();
        assert!(running <= 1, "two copies run");
    }

    /// Moves the rank to the other host. Returns the outcome.
    fn go(&mut self, (deaths, cancels): (u32, u32)) -> Outcome {
        let (source, target) = (self.at, 1 - self.at);
        self.coordinator.begin(self.now, 3, (source, target)).unwrap();
        self.act();
        for _ in 0..100_000 {
            if let Some(outcome) = self.outcome.take() {
                self.check(&outcome, source, target);
                return outcome;
            }
            self.step(deaths, cancels);
        }
        panic!("a move hangs: {:?}", self.coordinator.current());
    }

    fn check(&mut self, outcome: &Outcome, source: usize, target: usize) {
        match outcome {
            Outcome::Moved { .. } => {
                self.at = target;
                assert_eq!(self.hosts[source].process, Process::None);
                let there = &self.hosts[target];
                assert!(there.process == Process::Runs || !there.alive);
            }
            Outcome::Stayed { .. } => {
                let here = &self.hosts[source];
                assert!(
                    here.process == Process::Runs || !here.alive,
                    "it stands still: {outcome:?}"
                );
            }
            // The job ends, with all that is left of it.
            Outcome::Lost { why } => return assert!(why.contains("move "), "{why}"),
        }
        // Orders that are left over are obeyed before the next move.
        for host in [0, 1] {
            while !self.hosts[host].orders.is_empty() {
                self.obey(host);
            }
            self.hosts[host].words.clear();
        }
        let still = |host: &Host| host.process == Process::Still;
        assert!(!self.hosts.iter().any(still), "a copy is left: {outcome:?}");
    }
}

#[test]
fn handle__without_faults_each_move_goes_through() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        world.rng = Rng::new(seed);
        let mut moved = 0;
        let mut all = 0;
        for _ in 0..20 {
            all += 1;
            match world.go((0, 0)) {
                Outcome::Moved { .. } => moved += 1,
                Outcome::Stayed { .. } => {}
                Outcome::Lost { .. } => break,
            }
        }
        // Some orders fail by themselves.
        assert!(moved * 2 + 4 >= all, "seed {seed}: {moved} of {all}");
    }
}

#[test]
fn handle__under_deaths_and_cancels_one_copy_runs_and_no_number_twice() {
    let (mut moved, mut stayed, mut lost) = (0, 0, 0);
    for seed in 0..20_000 {
        let mut world = World::new(seed);
        for _ in 0..4 {
            if world.hosts.iter().any(|host| !host.alive) {
                break;
            }
            match world.go((60_000, 200_000)) {
                Outcome::Moved { .. } => moved += 1,
                Outcome::Stayed { .. } => stayed += 1,
                Outcome::Lost { .. } => {
                    lost += 1;
                    break;
                }
            }
        }
    }
    assert!(moved > 1000 && stayed > 1000 && lost > 100, "{moved} {stayed} {lost}");
}

#[test]
fn begin__one_rank_at_a_time() {
    let mut coordinator = Coordinator::new(2);
    let now = Duration::ZERO;
    assert!(coordinator.begin(now, 0, (1, 1)).unwrap_err().contains("runs there already"));
    assert_eq!(coordinator.begin(now, 0, (0, 1)), Ok(1));
    assert!(coordinator.begin(now, 1, (0, 1)).unwrap_err().contains("rank 0 moves now"));
    assert!(coordinator.cancel(now));
    assert_eq!(coordinator.begin(now, 0, (0, 1)), Ok(2));
}

#[test]
fn begin__packet_numbers_run_out_before_one_comes_twice() {
    let mut coordinator = Coordinator::new(1 << 20);
    let now = Duration::ZERO;
    let mut moves = 0;
    let why = loop {
        if let Err(why) = coordinator.begin(now, 5, (0, 1)) {
            break why;
        }
        coordinator.handle(now, 1, moves + 1, FromHost::Taking { place: String::new() });
        coordinator.cancel(now);
        coordinator.handle(now, 0, moves + 1, FromHost::Went { untold: 0 });
        moves += 1;
    };
    assert!(why.contains("which is the most") && moves > 3, "{why}");
}
