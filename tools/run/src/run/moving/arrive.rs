//! A rank that comes to this host, as the proxy of this host has it.

use super::carrier::Carrier;
use super::carry::{Did, Task};
use super::image::{Image, Rest, Use};
use super::{criu, obstacles, shared, tree, News, Order};
use crate::run::frame::{Outgoing, Up};
use crate::run::rank::{Ends, Rank};
use crate::run::sys::keep_open;
use anyhow::{bail, Context, Result};
use rustix::pipe::{pipe_with, PipeFlags};
use rustix::process::{pidfd_open, Pid, PidfdFlags, Signal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Child;
use weft::launch::moving;

/// A rank that comes.
pub struct Arriving {
    /// The rank.
    pub rank: usize,
    number: u32,
    /// The process that receives the copy.
    pub carrier: Option<Carrier>,
    /// Empty once the copy is restored.
    image: Option<Image>,
    restoring: Option<Restoring>,
    /// The copy, which stands still.
    pub copy: Option<Rank>,
}

/// CRIU restores the copy.
struct Restoring {
    child: Child,
    pidfd: OwnedFd,
    ends: Ends,
    rest: Rest,
}

impl Arriving {
    /// Makes room.
    ///
    /// # Errors
    /// This host cannot take a copy.
    pub fn begin(rank: usize, number: u32, key: String) -> Result<Arriving> {
        if let Some(why) = obstacles::here() {
            bail!("the host to which it was to move: {why}");
        }
        let image = Image::create()?;
        let folder = image.folder.clone();
        let carrier = Some(Carrier::start(&Task::Take { key, folder })?);
        let image = Some(image);
        Ok(Arriving { rank, number, carrier, image, restoring: None, copy: None })
    }

    fn news(&self, up: &mut Outgoing, news: News) {
        up.push(&Up::Move { rank: self.rank, number: self.number, news }, b"");
    }

    /// Says that this host cannot go on.
    pub fn fail(&self, up: &mut Outgoing, why: &anyhow::Error) {
        self.news(up, News::Failed { why: format!("{why:#}") });
    }

    /// Returns the descriptor that is readable when CRIU has restored the copy, or could not.
    pub fn restoring(&self) -> Option<BorrowedFd<'_>> {
        self.restoring.as_ref().map(|restoring| restoring.pidfd.as_fd())
    }

    /// Handles the word of the carrier.
    pub fn carried(&mut self, up: &mut Outgoing) {
        let did = self.carrier.as_mut().map(Carrier::did).unwrap_or_default();
        for did in did {
            let next = match did {
                Did::Waits { place } => {
                    self.news(up, News::Taking { place });
                    Ok(())
                }
                Did::Done => {
                    self.carrier = None;
                    self.restore()
                }
                Did::Failed { why } => Err(anyhow::anyhow!(why)),
                Did::Met | Did::Copied { .. } | Did::Sent { .. } => Ok(()),
            };
            if let Err(why) = next {
                self.carrier = None;
                self.fail(up, &why);
                return;
            }
        }
    }

    /// Has CRIU restore the copy, with connections to this proxy in place of those to the other.
    fn restore(&mut self) -> Result<()> {
        let image = self.image.as_ref().context("no copy")?;
        let rest = image.rest()?;
        shared::make(&rest.shared, &image.folder)?;
        let (pmi, pmi_of_rank) = UnixStream::pair()?;
        let (control, control_of_rank) = UnixStream::pair()?;
        let mut streams = [None, None, None];
        let mut of_rank: Vec<(Use, OwnedFd)> =
            vec![(Use::Pmi, pmi_of_rank.into()), (Use::Control, control_of_rank.into())];
        for (at, ours) in streams.iter_mut().enumerate() {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            let (mine, its) = if at == 0 { (write, read) } else { (read, write) };
            *ours = Some(mine);
            of_rank.push((Use::Stream(at), its));
        }
        let mut inherited = Vec::new();
        for (name, what) in &rest.inherited {
            let at = of_rank.iter().position(|(of, _)| of == what);
            // Two descriptors may be of one pipe.
            if let Some(at) = at.filter(|_| !inherited.iter().any(|(other, _)| other == name)) {
                inherited.push((name.clone(), of_rank.swap_remove(at).1));
            }
        }
        for (at, ours) in streams.iter_mut().enumerate() {
            if !rest.inherited.iter().any(|(_, what)| *what == Use::Stream(at)) {
                *ours = None;
            }
        }
        let mut command = criu::restore(&image.folder, &inherited);
        keep_open(&mut command, inherited.iter().map(|(_, fd)| fd.as_fd()));
        let child = command.spawn().context("starting CRIU")?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        let ends = Ends { streams, pmi, control };
        self.restoring = Some(Restoring { child, pidfd, ends, rest });
        Ok(())
    }

    /// Handles the end of CRIU.
    pub fn restored(&mut self, up: &mut Outgoing) {
        let Some(mut restoring) = self.restoring.take() else { return };
        let Some(image) = self.image.take() else { return };
        let well = restoring.child.wait().is_ok_and(|status| status.success());
        let copy = criu::restored(&image.folder, well).and_then(|pid| {
            let rank = Rank::restored(self.rank, pid, restoring.ends, &restoring.rest);
            rank.context("the restored process")
        });
        match copy {
            Ok(copy) => {
                let pid = copy.pid().as_raw_nonzero().get() as u32;
                self.copy = Some(copy);
                self.news(up, News::Stands { pid });
            }
            Err(why) => self.fail(up, &why),
        }
    }

    /// Lets the copy run. Returns it; its word about that follows.
    pub fn go(&mut self, order: &Order, up: &mut Outgoing) -> Option<Rank> {
        let Order::Go { first, last } = order else { return None };
        let copy = self.copy.take()?;
        tree::signal(copy.pid(), Signal::CONT);
        let go = moving::Order::Go { number: self.number, runs: *first..*last };
        let told = copy.control.as_ref().map(|control| control.order(&go));
        if !matches!(told, Some(Ok(()))) {
            self.news(up, News::Broken { why: "the copy does not hear its launcher".into() });
        }
        Some(copy)
    }

    /// Handles a word of the rank.
    pub fn heard(&self, word: moving::Word, up: &mut Outgoing) {
        match word {
            moving::Word::Went { number, untold } if number == self.number => {
                self.news(up, News::Went { untold });
            }
            moving::Word::Cannot { number, why } if number == self.number => {
                self.news(up, News::Broken { why });
            }
            _ => {}
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if let Some(mut restoring) = self.restoring.take() {
            // CRIU may have ended already.
            let _ = restoring.child.kill();
            let _ = restoring.child.wait();
        }
        if let Some(copy) = self.copy.take() {
            copy.kill();
        }
    }
}
