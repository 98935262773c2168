//! A rank that leaves this host, as its proxy has it.

use super::carrier::Carrier;
use super::carry::{Did, Task};
use super::image::{Image, Rest, Use};
use super::{obstacles, shared, tree, News, Order};
use crate::run::frame::{read_some, Outgoing, Up};
use crate::run::rank::Rank;
use crate::run::sys::descriptor_of;
use anyhow::{Context, Result};
use rustix::fs::OFlags;
use rustix::process::Signal;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Instant;
use weft::launch::moving;

/// A rank that leaves.
pub struct Leaving {
    /// The rank.
    pub rank: usize,
    number: u32,
    /// The process that copies it.
    pub carrier: Option<Carrier>,
    image: Image,
    /// Descriptors of the rank's connections: those of the copy, to read what it has not read.
    ends: Vec<(Use, OwnedFd)>,
    /// The time at which the rank was told to stand still, unless it has refused.
    holds: Option<Instant>,
    /// CRIU copies the process now, and must not be interrupted: it would leave it stopped.
    copying: bool,
    /// The rank is to go on with these packet numbers as soon as CRIU has ended.
    pending: Option<Range<u64>>,
    /// The rank goes on here.
    resumed: bool,
}

/// Returns the name of a descriptor as the system has it: `pipe:[7]`.
fn name_of(fd: &OwnedFd) -> Result<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Reads all that waits in a descriptor.
fn drain(fd: &OwnedFd) -> Result<Vec<u8>> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
    let mut all = Vec::new();
    while let Some(bytes) = read_some(fd.as_fd())? {
        if bytes.is_empty() {
            break;
        }
        all.extend(bytes);
    }
    // The rank has the same open file, and expects it as it was.
    rustix::fs::fcntl_setfl(fd, flags)?;
    Ok(all)
}

impl Leaving {
    /// Begins: the copier meets the other host while the rank goes on.
    ///
    /// # Errors
    /// The rank cannot move.
    pub fn begin(rank: &Rank, number: u32, (key, place): (String, String)) -> Result<Leaving> {
        let numbers = rank.numbers.context("this rank was not started with --migratable")?;
        let mut obstacles = obstacles::of(rank.pid());
        obstacles.extend(rank.unready());
        anyhow::ensure!(obstacles.is_empty(), "{}", obstacles.join("; "));
        let uses = [
            (Use::Stream(0), 0),
            (Use::Stream(1), 1),
            (Use::Stream(2), 2),
            (Use::Pmi, numbers.pmi),
            (Use::Control, numbers.control),
        ];
        let mut ends = Vec::new();
        for (what, fd) in uses {
            let copy = descriptor_of(rank.pidfd.as_fd(), fd).context("a descriptor of the rank")?;
            // A file, such as /dev/null, is opened again.
            if !name_of(&copy)?.starts_with('/') {
                ends.push((what, copy));
            }
        }
        let image = Image::create()?;
        let mut sockets = Vec::new();
        for (what, fd) in &ends {
            if matches!(what, Use::Pmi | Use::Control) {
                sockets.push(rustix::fs::fstat(fd)?.st_ino);
            }
        }
        let (folder, pid) = (image.folder.clone(), rank.pid().as_raw_nonzero().get());
        let task = Task::Give { key, place, folder, pid, sockets };
        let carrier = Some(Carrier::start(&task)?);
        let (rank, holds, copying, resumed) = (rank.rank, None, false, false);
        Ok(Leaving { rank, number, carrier, image, ends, holds, copying, pending: None, resumed })
    }

    fn news(&self, up: &mut Outgoing, news: News) {
        up.push(&Up::Move { rank: self.rank, number: self.number, news }, b"");
    }

    fn fail(&self, up: &mut Outgoing, why: String) {
        self.news(up, News::Failed { why });
    }

    /// Handles the word of the carrier.
    pub fn carried(&mut self, rank: &mut Rank, up: &mut Outgoing) {
        let did = self.carrier.as_mut().map(Carrier::did).unwrap_or_default();
        for did in did {
            if matches!(did, Did::Copied { .. } | Did::Failed { .. }) {
                self.copying = false;
                if let Some(runs) = self.pending.take() {
                    return self.resume(rank, runs, up);
                }
            }
            let next = match did {
                Did::Met => self.hold(rank),
                Did::Copied { bytes } => self.copied(rank, up, bytes),
                Did::Sent { bytes } => {
                    self.news(up, News::Sending { bytes });
                    Ok(())
                }
                Did::Failed { why } => Err(anyhow::anyhow!(why)),
                Did::Waits { .. } | Did::Done => Ok(()),
            };
            if let Err(why) = next {
                self.carrier = None;
                self.fail(up, format!("{why:#}"));
                return;
            }
        }
    }

    fn hold(&mut self, rank: &Rank) -> Result<()> {
        self.holds = Some(Instant::now());
        let control = rank.control.as_ref().context("no connection to order a move")?;
        control.order(&moving::Order::Hold { number: self.number }).context("ordering the move")
    }

    /// Notes that the process is copied and stands still, and has the copy sent.
    fn copied(&mut self, rank: &mut Rank, up: &mut Outgoing, bytes: u64) -> Result<()> {
        let [pmi, pmi_line, stdin] = rank.unwritten();
        let numbers = rank.numbers.context("the descriptors of the rank")?;
        let stdin_ends = rank.stdin_ends;
        let mut rest = Rest { numbers, pmi_line, stdin_ends, ..Rest::default() };
        for (what, fd) in &self.ends {
            match what {
                Use::Pmi => rest.pmi = drain(fd)?,
                Use::Stream(0) => rest.stdin = drain(fd)?,
                Use::Stream(_) | Use::Control => {}
            }
            rest.inherited.push((name_of(fd)?, what.clone()));
        }
        rest.shared = shared::put(rank.pid(), &self.image.folder)?;
        rest.pmi.extend(pmi);
        rest.stdin.extend(stdin);
        self.image.put(&rest)?;
        // If the rank goes on here, its proxy gives it these bytes again.
        rank.keep(rest);
        self.news(up, News::Copied { bytes });
        self.carrier.as_mut().context("no carrier")?.tell("send")
    }

    /// Handles a word of the rank.
    pub fn heard(&mut self, word: moving::Word, up: &mut Outgoing) {
        match word {
            moving::Word::Held { number } if number == self.number => {
                let ms = self.holds.map_or(0.0, |since| since.elapsed().as_secs_f64() * 1e3);
                self.news(up, News::Held { ms });
                let copy = self.carrier.as_mut().context("the carrier of the copy ended");
                match copy.and_then(|carrier| carrier.tell("copy")) {
                    Ok(()) => self.copying = true,
                    Err(why) => self.fail(up, format!("{why:#}")),
                }
            }
            moving::Word::Went { number, untold } if number == self.number => {
                self.news(up, News::Went { untold });
            }
            moving::Word::Cannot { number, why } if number == self.number && self.resumed => {
                self.news(up, News::Broken { why });
            }
            moving::Word::Cannot { number, why } if number == self.number => {
                self.holds = None;
                self.fail(up, why);
            }
            _ => {}
        }
    }

    /// Handles an order. True if the rank has left, or stays, and this value is not needed any
    /// more.
    pub fn obey(&mut self, rank: &mut Rank, order: &Order, up: &mut Outgoing) -> bool {
        match order {
            Order::Resume { first, last } => {
                match self.copying {
                    true => self.pending = Some(*first..*last),
                    false => self.resume(rank, *first..*last, up),
                }
                false
            }
            Order::End => true,
            _ => false,
        }
    }

    /// Lets the rank go on here.
    fn resume(&mut self, rank: &Rank, runs: Range<u64>, up: &mut Outgoing) {
        (self.carrier, self.resumed) = (None, true);
        self.ends.clear();
        // A process that was not stopped does not notice it.
        tree::signal(rank.pid(), Signal::CONT);
        if self.holds.is_none() {
            // The rank never stood still.
            return self.news(up, News::Went { untold: 0 });
        }
        let go = moving::Order::Go { number: self.number, runs };
        let told = rank.control.as_ref().map(|control| control.order(&go));
        if !matches!(told, Some(Ok(()))) {
            let why = "the rank does not hear its launcher".into();
            self.news(up, News::Broken { why });
        }
    }

    /// Says that the rank's process is dead.
    pub fn say_dead(&self, up: &mut Outgoing) {
        self.news(up, News::Dead);
    }
}
