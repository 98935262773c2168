//! The answers for a member whose handle was dropped.

use super::core::Core;
use super::driver::CONTROL;
use super::wire::{Control, Gone, Install, ViewId};
use crate::channel::argument_of;
use crate::net::{Net, Unsent};
use std::cell::RefCell;
use std::rc::Rc;

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
        Grave {
            life: core.change.joining.life,
            view: core.view,
            last: core.change.last.clone(),
            gone,
        }
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
