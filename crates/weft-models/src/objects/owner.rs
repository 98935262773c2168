//! Operations of other ranks on an object that is at this rank.

use super::entry::{Blocked, Executed, Where};
use super::runtime::{refuse_after, Inner};
use super::strange::Kept;
use super::wire::{parse_call, reply_head, Status};
use super::ObjectCause;
use crate::net::Net;
use crate::rpc::Request;
use std::rc::Rc;

impl<N: Net> Inner<N> {
    /// Handles a call, when this rank has processed as many messages as the caller had: else the
    /// caller would see an older state than it has seen.
    pub fn called(self: &Rc<Self>, request: Request<N>, args: &[u8]) {
        let Some((_, stamp, _)) = parse_call(args) else {
            return request.refuse("no operation on an object");
        };
        if self.stamp.get() >= stamp {
            return self.do_called(request, args);
        }
        self.later.borrow_mut().push((stamp, request, args.to_vec()));
    }

    /// Handles a call whose caller has seen no newer state than this rank.
    pub fn do_called(self: &Rc<Self>, request: Request<N>, args: &[u8]) {
        // A caller that has failed meanwhile may have processed messages that no survivor has.
        if request.is_cancelled() {
            return;
        }
        if !self.is_member(request.from()) {
            return self.refuse_excluded(request);
        }
        if let Some(error) = self.order.ended() {
            return refuse_after(request, &error);
        }
        let Some((object, _, op)) = parse_call(args) else { return };
        let entry = self.directory.get(object);
        let Some(entry) = entry else {
            let class = self.strange.borrow().class_of(object);
            if let Some(class) = class {
                return self.keep(class, Kept::Call(request, args.to_vec()));
            }
            if self.strange.borrow().lacks_some() {
                return self.refuse_strange(request);
            }
            return self.reply(request, Status::NoObject, &[]);
        };
        if let Some(cause) = entry.broken.borrow().clone() {
            return match cause {
                ObjectCause::Broken(text) => self.reply(request, Status::Broken, text.as_bytes()),
                cause => request.refuse(&format!("{cause:?}")),
            };
        }
        let wait = |request| {
            entry.forget_given_up();
            let op = op.to_vec();
            entry.blocked.borrow_mut().push_back(Blocked::Called { request, op });
        };
        match entry.place.get() {
            Where::At(rank) if rank == self.net.rank() => {}
            Where::Leaving => return wait(request),
            _ => return self.reply(request, Status::Moved, &[]),
        }
        let by = request.from();
        match entry.replica.execute(op, self.spare.take()) {
            Executed::Blocked => wait(request),
            Executed::Broken(text) => {
                self.reply(request, Status::Broken, text.as_bytes());
                self.broke(&entry, &text);
            }
            executed => {
                let changed = matches!(executed, Executed::Done(_, true));
                self.answer(request, executed);
                if changed {
                    self.changed(&entry);
                }
                self.adapt_here(&entry, by, changed);
            }
        }
    }

    /// Answers a call; one whose operation still waits finds the object elsewhere.
    pub fn answer(&self, request: Request<N>, executed: Executed) {
        match executed {
            Executed::Done(reply, _) => {
                self.reply(request, Status::Done, &reply);
                self.set_spare(reply);
            }
            Executed::Blocked => self.reply(request, Status::Moved, &[]),
            Executed::Broken(text) => self.reply(request, Status::Broken, text.as_bytes()),
            Executed::Panicked(text) => self.reply(request, Status::Panicked, text.as_bytes()),
            Executed::Unreadable(why) => self.reply(request, Status::Unreadable, why.as_bytes()),
        }
    }

    /// Refuses a call to an object that is deleted before its guard has held.
    pub fn refuse_deleted(&self, request: Request<N>) {
        self.reply(request, Status::NoObject, &[]);
    }

    fn reply(&self, request: Request<N>, status: Status, bytes: &[u8]) {
        // The messages of the order so far: the caller must not go on with an older state.
        request.answer_parts(&[&reply_head(self.stamp.get(), status), bytes]);
    }
}
