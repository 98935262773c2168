//! The turn of an object: what it may do while it has a message.

use super::store::Extra;
use super::wire::Head;
use super::{Actor, ArrayId, Index, Section, Shape};
use std::any::Any;
use std::time::Duration;
use weft_core::Instant;

/// Something that an object does, which has an effect beyond itself.
pub(super) enum Action {
    /// A message for an object of an array.
    Message { array: u16, element: u32, priority: i32, message: Box<dyn Any> },
    /// A message for all objects of a section.
    Broadcast { array: u16, section: u16, priority: i32, bytes: Vec<u8> },
    /// A contribution to a round of reductions of a section.
    Contribute { array: u16, section: u16, round: u32, value: Box<dyn Any> },
    /// An object moves to a rank.
    Move { array: u16, element: u32, to: usize },
    /// Time of an object's computing, before the actions that follow.
    Pass { array: u16, element: u32, time: Duration },
    /// An object has done something that cannot be.
    Fault { array: u16, element: u32, text: String },
}

/// The runtime, as objects of any type see it.
pub(super) trait Sink {
    fn rank(&self) -> usize;
    fn ranks(&self) -> usize;
    fn now(&self) -> Instant;
    /// Returns the number of an object, and the rank at which it is as far as this rank knows.
    ///
    /// # Errors
    /// There is no such array, or index: the text says so.
    fn find(&self, array: u16, index: Index) -> Result<(u32, usize), String>;
    /// Returns the head of a message that is sent now.
    fn head(&self, array: u16, element: u32) -> Head;
    /// True if an action takes effect at once.
    fn is_direct(&self) -> bool;
    /// True if the clock sees only the computing that it is told of.
    fn time_is_virtual(&self) -> bool;
    /// True if loads and messages are counted.
    fn measures(&self) -> bool;
    /// Sends a message with its head to another rank.
    fn post(&self, to: usize, whole: &[u8]);
    /// Takes memory for a message, and gives it back.
    fn take_spare(&self) -> Vec<u8>;
    fn set_spare(&self, memory: Vec<u8>);
    fn act(&self, action: Action);
}

/// The turn of an object of type `A`, which has got a message.
pub struct Turn<'a, A: Actor> {
    pub(super) array: u16,
    pub(super) element: u32,
    pub(super) shape: &'a Shape,
    pub(super) shared: &'a A::Shared,
    pub(super) sink: &'a dyn Sink,
    /// Reductions of the array to which the object has contributed.
    pub(super) rounds: &'a mut u32,
    pub(super) extra: &'a mut Option<Box<Extra>>,
}

impl<A: Actor> Turn<'_, A> {
    /// Returns the index of the object.
    pub fn index(&self) -> Index {
        self.shape.index(self.element)
    }

    /// Returns the shape of the object's array.
    pub fn shape(&self) -> Shape {
        *self.shape
    }

    /// Returns the values of the program that all objects of the array read at this rank.
    pub fn shared(&self) -> &A::Shared {
        self.shared
    }

    /// Returns the rank at which the object is.
    pub fn rank(&self) -> usize {
        self.sink.rank()
    }

    /// Returns the number of ranks.
    pub fn ranks(&self) -> usize {
        self.sink.ranks()
    }

    /// Sends a message to an object of the same array, this one included. If there is no such
    /// index, the run ends on all ranks with an error that names the object.
    pub fn send(&mut self, to: impl Into<Index>, message: A::Message) {
        self.send_as::<A>(self.array, to.into(), 0, message);
    }

    /// Sends a message with a priority: the least number comes first, and 0 is that of others.
    pub fn send_at(&mut self, priority: i32, to: impl Into<Index>, message: A::Message) {
        self.send_as::<A>(self.array, to.into(), priority, message);
    }

    /// Sends a message to an object of another array.
    pub fn send_to<B: Actor>(
        &mut self,
        array: ArrayId<B>,
        to: impl Into<Index>,
        message: B::Message,
    ) {
        self.send_to_at(array, 0, to, message);
    }

    /// Sends a message with a priority to an object of another array.
    pub fn send_to_at<B: Actor>(
        &mut self,
        array: ArrayId<B>,
        priority: i32,
        to: impl Into<Index>,
        message: B::Message,
    ) {
        self.send_as::<B>(array.number, to.into(), priority, message);
    }

    /// Sends a message to all objects of the array, this one included.
    pub fn broadcast(&mut self, message: &A::Message) {
        self.broadcast_to(Section::ALL, message);
    }

    /// Sends a message to all objects of a section of the array.
    pub fn broadcast_to(&mut self, section: Section, message: &A::Message) {
        match postcard::to_allocvec(message) {
            Ok(bytes) => {
                let (array, section) = (self.array, section.0);
                self.sink.act(Action::Broadcast { array, section, priority: 0, bytes });
            }
            Err(why) => self.fault(format!("its broadcast has no bytes: {why}")),
        }
    }

    /// Contributes to the next reduction of the array. When all objects have contributed to it, all
    /// get the combined value by [`Actor::reduced`].
    pub fn contribute(&mut self, value: A::Value) {
        let round = *self.rounds;
        *self.rounds += 1;
        self.sink.act(Action::Contribute {
            array: self.array,
            section: Section::ALL.0,
            round,
            value: Box::new(value),
        });
    }

    /// Contributes to the next reduction of a section, to which the object belongs.
    pub fn contribute_to(&mut self, section: Section, value: A::Value) {
        if section == Section::ALL {
            return self.contribute(value);
        }
        let extra = self.extra.get_or_insert_default();
        let next = extra.sections.entry(section.0).or_default();
        let round = *next;
        *next += 1;
        let (array, section) = (self.array, section.0);
        self.sink.act(Action::Contribute { array, section, round, value: Box::new(value) });
    }

    /// Moves the object to a rank when the turn is over. Messages follow it.
    pub fn move_to(&mut self, rank: usize) {
        if rank >= self.ranks() {
            return self.fault(format!("it moves to rank {rank}, and there are {}", self.ranks()));
        }
        self.sink.act(Action::Move { array: self.array, element: self.element, to: rank });
    }

    /// Lets the time of a computation pass where the clock does not see programs compute, in a
    /// simulator. The actions that follow have their effects after that time.
    pub fn compute(&mut self, time: Duration) {
        if self.sink.time_is_virtual() {
            let (array, element) = (self.array, self.element);
            self.sink.act(Action::Pass { array, element, time });
        }
    }

    fn fault(&self, text: String) {
        self.sink.act(Action::Fault { array: self.array, element: self.element, text });
    }

    fn send_as<B: Actor>(&mut self, array: u16, to: Index, priority: i32, message: B::Message) {
        let (element, rank) = match self.sink.find(array, to) {
            Ok(found) => found,
            Err(text) => return self.fault(text),
        };
        if rank == self.sink.rank() || priority != 0 || !self.sink.is_direct() {
            if self.sink.measures() {
                let len = postcard::to_allocvec(&message).map_or(0, |bytes| bytes.len());
                self.note(array, element, len);
            }
            let message = Box::new(message);
            return self.sink.act(Action::Message { array, element, priority, message });
        }
        let mut whole = self.sink.take_spare();
        whole.extend_from_slice(&self.sink.head(array, element).to_bytes());
        match postcard::to_extend(&message, whole) {
            Ok(whole) => {
                self.note(array, element, whole.len());
                self.sink.post(rank, &whole);
                self.sink.set_spare(whole);
            }
            Err(why) => self.fault(format!("its message has no bytes: {why}")),
        }
    }

    /// Counts a message to an object, if messages are counted.
    fn note(&mut self, array: u16, element: u32, len: usize) {
        if self.sink.measures() {
            let sends = &mut self.extra.get_or_insert_default().sends;
            let (messages, bytes) = sends.entry((array, element)).or_default();
            *messages += 1;
            *bytes += len as u64;
        }
    }
}
