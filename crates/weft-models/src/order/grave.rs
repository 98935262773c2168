//! The last state of a member, and the answers for one whose handle was dropped.

use super::core::Core;
use super::driver::CONTROL;
use super::wire::{Control, Gone, Install, Placed, Standing, ViewId};
use crate::channel::argument_of;
use crate::net::{Net, Unsent};
use std::cell::RefCell;
use std::rc::Rc;

/// Most bytes of slots that a member hands to each other one when it ends.
pub(super) const HANDED_MAX: usize = 1 << 20;

/// True if a member may hand its last state to all others.
pub(super) fn is_short(standing: &Standing) -> bool {
    let lens = standing.slots.iter().map(|(_, slot)| slot.data.len() + size_of::<Placed>());
    lens.sum::<usize>() <= HANDED_MAX
}

impl Core {
    /// Returns the last state of this member, for the others.
    pub fn last_word(&self) -> Gone {
        let slots = self.slots_from(self.stable, &[]);
        let standing = Standing {
            next: self.next,
            slots,
            spare: None,
            accepted: self.change.accepted.clone(),
        };
        let standing = Some(standing).filter(is_short);
        Gone { life: self.life, view: self.view, promised: self.change.promised, standing }
    }

    /// Returns the ranks that are told of this member's end: the others, or those that may let it
    /// in.
    pub fn heirs(&self) -> Vec<u32> {
        let all = self.members.iter().chain(&self.change.joining.contacts).copied();
        all.filter(|&rank| rank != self.me).collect()
    }
}

/// The things that a member leaves behind.
pub(super) struct Grave {
    life: u64,
    view: ViewId,
    /// The way in which its last view came to be.
    last: Option<Install>,
    /// Its last state, unless it has left in good order.
    gone: Option<Gone>,
}

impl Grave {
    pub fn new(core: &Core) -> Grave {
        let has_left = core.ended == Some(super::OrderError::Left);
        let gone = (!has_left).then(|| core.last_word());
        Grave { life: core.life, view: core.view, last: core.change.last.clone(), gone }
    }

    /// The end of a member that has left in good order.
    fn left(&self) -> Gone {
        Gone { life: self.life, view: self.view, promised: 0, standing: None }
    }

    /// Returns the answer to a control, and the rank that gets it.
    pub fn answer(&self, from: u32, control: Control) -> Option<(u32, Control)> {
        match control {
            Control::Join { rank, .. } => Some((rank, Control::Over)),
            // The author of a view that has this member, which never came, or another author of it.
            Control::Welcome { .. } => {
                self.gone.as_ref().map(|gone| (from, Control::Gone(gone.clone())))
            }
            Control::Flush { view, .. } => {
                let last = self.last.as_ref().filter(|last| last.old == view);
                let gone = self.gone.as_ref().filter(|gone| gone.view.epoch <= view.epoch);
                let answer = match (last, gone) {
                    // The sender may have accepted it and missed the end of the change.
                    (Some(last), _) => Control::Enter { new: last.new },
                    (None, Some(gone)) => Control::Gone(gone.clone()),
                    (None, None) => Control::Excluded { view: self.view },
                };
                Some((from, answer))
            }
            Control::Lag { view, .. } => {
                let last = self.last.as_ref().filter(|last| last.old == view);
                let answer = match last.is_some_and(|last| last.members.contains(&from)) {
                    // The rank has a place in that view, and others know its slots.
                    true => Control::Gone(self.gone.clone().unwrap_or_else(|| self.left())),
                    false => Control::Excluded { view: self.view },
                };
                Some((from, answer))
            }
            _ => None,
        }
    }
}

/// Answers the controls that come when the handle of a member is dropped.
pub(super) fn answer_for_dead<N: Net>(
    net: &N,
    handler: u16,
    grave: &Rc<RefCell<Option<Grave>>>,
) -> impl Fn(usize, u8, &[u8]) + use<N> {
    let (ranks, net, grave) = (net.size(), net.downgrade(), Rc::clone(grave));
    move |from, _, bytes| {
        let (Some(net), Ok(control)) = (net(), Control::read(bytes, ranks)) else { return };
        let answer = grave.borrow().as_ref().and_then(|grave| grave.answer(from as u32, control));
        let Some((to, answer)) = answer else { return };
        let send = |answer: &Control| {
            let bytes = postcard::to_allocvec(answer).unwrap_or_default();
            net.try_send(to as usize, handler, argument_of(CONTROL), &bytes)
        };
        // A rank that gets no answer asks again, or notices the silence.
        match (send(&answer), answer) {
            (Err(Unsent::TooLong { .. }), Control::Gone(gone)) => {
                _ = send(&Control::Gone(Gone { standing: None, ..gone }));
            }
            (sent, _) => drop(sent),
        }
    }
}
