//! Moves of ranks from and to the proxy's host.

use super::{Proxy, Ready, Side};
use crate::run::frame::Up;
use crate::run::moving::arrive::Arriving;
use crate::run::moving::leave::Leaving;
use crate::run::moving::{obstacles, News, Order};
use crate::run::poll::{Set, READ};
use weft::launch::moving;

impl Proxy {
    /// Adds the descriptors of moves to a wait.
    pub(super) fn add_moves<'a>(&'a self, set: &mut Set<'a, Ready>) {
        let leaving = self.leaving.as_ref().and_then(|leaving| leaving.carrier.as_ref()?.fd());
        let arriving = self.arriving.as_ref();
        let carrier = arriving.and_then(|arriving| arriving.carrier.as_ref()?.fd());
        let restored = arriving.and_then(Arriving::restoring);
        leaving.into_iter().for_each(|fd| set.add(Ready::Carrier(Side::Source), fd, READ));
        carrier.into_iter().for_each(|fd| set.add(Ready::Carrier(Side::Target), fd, READ));
        restored.into_iter().for_each(|fd| set.add(Ready::Restored, fd, READ));
    }

    /// Handles words of a rank about its move.
    pub(super) fn hear(&mut self, at: usize) {
        let (rank, words) = {
            let rank = &mut self.ranks[at];
            let Some(control) = &mut rank.control else { return };
            match control.words() {
                Ok(words) => {
                    control.ready |= words.contains(&moving::Word::Ready);
                    (rank.rank, words)
                }
                Err(_) => {
                    rank.control = None;
                    return;
                }
            }
        };
        for word in words {
            if let Some(leaving) = self.leaving.as_mut().filter(|leaving| leaving.rank == rank) {
                leaving.heard(word, &mut self.up);
            } else if let Some(arriving) = self.arriving.as_ref().filter(|a| a.rank == rank) {
                arriving.heard(word, &mut self.up);
            }
        }
    }

    /// Handles what a carrier has done.
    pub(super) fn carried(&mut self, side: Side) {
        match side {
            Side::Target => {
                self.arriving.iter_mut().for_each(|arriving| arriving.carried(&mut self.up));
            }
            Side::Source => {
                let Some(leaving) = &mut self.leaving else { return };
                let rank = self.ranks.iter_mut().find(|rank| rank.rank == leaving.rank);
                rank.into_iter().for_each(|rank| leaving.carried(rank, &mut self.up));
            }
        }
    }

    /// Does a step of a move.
    pub(super) fn move_step(&mut self, rank: usize, number: u32, order: Order) {
        let begun = match order {
            Order::Take { key } => {
                self.arriving = None;
                Arriving::begin(rank, number, key).map(|arriving| self.arriving = Some(arriving))
            }
            Order::Give { key, place } => self.give(rank, number, (key, place)),
            Order::Check => {
                let here = self.ranks.iter().find(|r| r.rank == rank);
                let why = match here {
                    Some(rank) => {
                        obstacles::of(rank.pid()).into_iter().chain(rank.unready()).collect()
                    }
                    None => obstacles::here().into_iter().collect(),
                };
                self.up.push(&Up::Move { rank, number, news: News::Checked { why } }, b"");
                Ok(())
            }
            Order::Drop => {
                self.arriving = None;
                Ok(())
            }
            Order::Go { .. } => {
                let copy = self.arriving.as_mut().and_then(|a| a.go(&order, &mut self.up));
                copy.iter().for_each(|copy| self.left.note(copy.pid()));
                self.ranks.extend(copy);
                Ok(())
            }
            Order::End | Order::Resume { .. } => self.leave_step(&order),
        };
        if let Err(why) = begun {
            let news = News::Failed { why: format!("{why:#}") };
            self.up.push(&Up::Move { rank, number, news }, b"");
        }
    }

    fn give(&mut self, rank: usize, number: u32, to: (String, String)) -> anyhow::Result<()> {
        self.leaving = None;
        let rank = self.ranks.iter().find(|r| r.rank == rank);
        let rank = rank.ok_or_else(|| anyhow::anyhow!("its process has ended"))?;
        self.leaving = Some(Leaving::begin(rank, number, to)?);
        Ok(())
    }

    fn leave_step(&mut self, order: &Order) -> anyhow::Result<()> {
        let Some(mut leaving) = self.leaving.take() else { return Ok(()) };
        let Some(at) = self.ranks.iter().position(|r| r.rank == leaving.rank) else {
            anyhow::bail!("its process has ended");
        };
        if leaving.obey(&mut self.ranks[at], order, &mut self.up) {
            let rank = self.ranks.remove(at);
            self.left.note(rank.pid());
            rank.leave(&mut self.up)?;
            leaving.say_dead(&mut self.up);
        } else {
            self.leaving = Some(leaving);
        }
        Ok(())
    }
}
