//! The objects of an array at this rank.

use super::queue::Work;
use super::turn::{Sink, Turn};
use super::wire::Packed;
use super::{Actor, Section, Shape};
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::time::Duration;

/// The things that few objects have.
#[derive(Default)]
pub(super) struct Extra {
    /// Reductions of sections to which the object has contributed.
    pub sections: BTreeMap<u16, u32>,
    /// Messages to other objects, by array and object, and their bytes.
    pub sends: BTreeMap<(u16, u32), (u32, u64)>,
}

struct Slot<A> {
    state: A,
    /// Broadcasts that the object has had, if that are more than its rank has passed on.
    heard: u32,
    rounds: u32,
    /// Time of its turns, in ns.
    load: u64,
    extra: Option<Box<Extra>>,
}

pub(super) struct Store<A: Actor> {
    array: u16,
    shape: Shape,
    shared: Rc<A::Shared>,
    slots: RefCell<BTreeMap<u32, Slot<A>>>,
}

/// The end of a turn.
pub(super) enum Ran {
    Done,
    /// The object is not here.
    Absent(Work),
    Panicked(String),
    /// The bytes, or the value, are not of the type of the array.
    Unreadable(String),
}

/// A message or a value for an object.
enum Given<A: Actor> {
    Message(A::Message),
    Value(Section, A::Value),
}

/// A rank's report about an object.
pub(super) struct Measured {
    pub element: u32,
    pub load: u64,
    pub sends: Vec<((u16, u32), (u32, u64))>,
}

/// The objects of an array, whatever their type.
pub(super) trait AnyStore {
    fn name(&self) -> Cow<'_, str>;
    fn version(&self) -> u32;
    fn len(&self) -> usize;
    fn elements(&self) -> Vec<u32>;
    /// Gives an object work that is its own.
    fn run(&self, element: u32, work: Work, sink: &dyn Sink) -> Ran;
    /// Gives an object a message from its bytes. `None` if the object is not here.
    fn run_bytes(&self, element: u32, bytes: &[u8], sink: &dyn Sink) -> Option<Ran>;
    /// Returns the bytes of a message of this type.
    fn encode(&self, message: &dyn Any) -> Result<Vec<u8>, String>;
    fn encode_value(&self, value: &dyn Any) -> Result<Vec<u8>, String>;
    fn decode_value(&self, bytes: &[u8]) -> Result<Box<dyn Any>, String>;
    fn combine(&self, all: &mut Box<dyn Any>, other: Box<dyn Any>) -> Result<(), String>;
    /// Returns the objects to which a broadcast of this number goes: those that have not had it.
    fn hearers(&self, number: u32, members: Option<&[u32]>) -> Vec<u32>;
    /// Returns the number of objects, among `members`, that have contributed to a round.
    fn passed(&self, section: u16, round: u32, members: Option<&[u32]>) -> u32;
    /// Returns the objects, among `members`, that are here.
    fn present(&self, members: &[u32]) -> u32;
    /// Takes an object out. `None` if it is not here.
    fn pack(&self, element: u32, moves: u32, heard: u32) -> Option<Result<Packed, String>>;
    /// Puts an object in.
    fn unpack(&self, packed: &Packed) -> Result<(), String>;
    /// Returns the bytes of an object's state.
    fn state(&self, element: u32) -> Option<Result<Vec<u8>, String>>;
    /// Adds time to that of an object's turns.
    fn add_load(&self, element: u32, time: Duration);
    /// Forgets all objects.
    fn clear(&self);
    /// Returns loads and messages since the last call.
    fn take_measured(&self) -> Vec<Measured>;
}

fn text(why: postcard::Error) -> String {
    why.to_string()
}

impl<A: Actor> Store<A> {
    pub fn new(array: u16, shape: Shape, shared: Rc<A::Shared>) -> Store<A> {
        Store { array, shape, shared, slots: RefCell::default() }
    }

    pub fn insert(&self, element: u32, state: A) {
        let slot = Slot { state, heard: 0, rounds: 0, load: 0, extra: None };
        self.slots.borrow_mut().insert(element, slot);
    }

    pub fn each(&self, mut call: impl FnMut(u32, &A)) {
        self.slots.borrow().iter().for_each(|(element, slot)| call(*element, &slot.state));
    }

    /// Gives an object its turn. The object is borrowed meanwhile; nothing that a turn does comes
    /// back to the store before it is over.
    fn enter(&self, element: u32, given: Given<A>, sink: &dyn Sink) -> Option<Ran> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(&element)?;
        let Slot { state, rounds, load, extra, .. } = slot;
        // Virtual time passes after the turn.
        let since = (sink.measures() && !sink.time_is_virtual()).then(|| sink.now());
        let mut turn = Turn {
            array: self.array,
            element,
            shape: &self.shape,
            shared: &*self.shared,
            sink,
            rounds,
            extra,
        };
        let done = catch_unwind(AssertUnwindSafe(|| match given {
            Given::Message(message) => state.receive(message, &mut turn),
            Given::Value(section, value) => state.reduced(section, value, &mut turn),
        }));
        if let Some(since) = since {
            *load += sink.now().since(since).as_nanos() as u64;
        }
        Some(match done {
            Ok(()) => Ran::Done,
            Err(panic) => Ran::Panicked(crate::panic_text(&*panic)),
        })
    }
}

impl<A: Actor> AnyStore for Store<A> {
    fn name(&self) -> Cow<'_, str> {
        A::name(&self.shared)
    }

    fn version(&self) -> u32 {
        A::VERSION
    }

    fn len(&self) -> usize {
        self.slots.borrow().len()
    }

    fn elements(&self) -> Vec<u32> {
        self.slots.borrow().keys().copied().collect()
    }

    fn run(&self, element: u32, work: Work, sink: &dyn Sink) -> Ran {
        if !self.slots.borrow().contains_key(&element) {
            return Ran::Absent(work);
        }
        let given = match work {
            Work::Own(message) => match message.downcast() {
                Ok(message) => Ok(Given::Message(*message)),
                Err(_) => Err("the message is of another array's type".to_string()),
            },
            Work::Bytes(bytes) => postcard::from_bytes(&bytes).map(Given::Message).map_err(text),
            Work::Shared(bytes) => postcard::from_bytes(&bytes).map(Given::Message).map_err(text),
            Work::Reduced(section, bytes) => postcard::from_bytes(&bytes)
                .map(|value| Given::Value(Section(section), value))
                .map_err(text),
        };
        match given {
            Ok(given) => self.enter(element, given, sink).unwrap_or(Ran::Done),
            Err(why) => Ran::Unreadable(why),
        }
    }

    fn run_bytes(&self, element: u32, bytes: &[u8], sink: &dyn Sink) -> Option<Ran> {
        match postcard::from_bytes(bytes) {
            Ok(message) => self.enter(element, Given::Message(message), sink),
            Err(why) => Some(Ran::Unreadable(text(why))),
        }
    }

    fn encode(&self, message: &dyn Any) -> Result<Vec<u8>, String> {
        let message = message.downcast_ref::<A::Message>();
        let message = message.ok_or("the message is of another array's type")?;
        postcard::to_allocvec(message).map_err(text)
    }

    fn encode_value(&self, value: &dyn Any) -> Result<Vec<u8>, String> {
        let value = value.downcast_ref::<A::Value>();
        postcard::to_allocvec(value.ok_or("the value is of another array's type")?).map_err(text)
    }

    fn decode_value(&self, bytes: &[u8]) -> Result<Box<dyn Any>, String> {
        let value = postcard::from_bytes::<A::Value>(bytes).map_err(text)?;
        Ok(Box::new(value))
    }

    fn combine(&self, all: &mut Box<dyn Any>, other: Box<dyn Any>) -> Result<(), String> {
        match (all.downcast_mut::<A::Value>(), other.downcast::<A::Value>()) {
            (Some(all), Ok(other)) => A::combine(all, *other),
            _ => return Err("the value is of another array's type".to_string()),
        }
        Ok(())
    }

    fn hearers(&self, number: u32, members: Option<&[u32]>) -> Vec<u32> {
        let slots = self.slots.borrow();
        let listens = |slot: &Slot<A>| slot.heard < number;
        match members {
            None => slots.iter().filter(|(_, slot)| listens(slot)).map(|(at, _)| *at).collect(),
            Some(members) => {
                let is_here = |at: &&u32| slots.get(at).is_some_and(listens);
                members.iter().filter(is_here).copied().collect()
            }
        }
    }

    fn passed(&self, section: u16, round: u32, members: Option<&[u32]>) -> u32 {
        let slots = self.slots.borrow();
        let count = match members {
            None => slots.values().filter(|slot| slot.rounds > round).count(),
            Some(members) => {
                let rounds = |slot: &Slot<A>| {
                    slot.extra.as_ref().and_then(|extra| extra.sections.get(&section)).copied()
                };
                let has = |at: &&u32| slots.get(at).and_then(rounds).unwrap_or(0) > round;
                members.iter().filter(has).count()
            }
        };
        count as u32
    }

    fn present(&self, members: &[u32]) -> u32 {
        let slots = self.slots.borrow();
        members.iter().filter(|at| slots.contains_key(at)).count() as u32
    }

    fn pack(&self, element: u32, moves: u32, heard: u32) -> Option<Result<Packed, String>> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get(&element)?;
        let state = match postcard::to_allocvec(&slot.state) {
            Ok(state) => state,
            Err(why) => return Some(Err(text(why))),
        };
        let slot = slots.remove(&element)?;
        let sections = slot.extra.map(|extra| extra.sections.into_iter().collect());
        Some(Ok(Packed {
            array: self.array,
            element,
            moves,
            heard: heard.max(slot.heard),
            rounds: slot.rounds,
            sections: sections.unwrap_or_default(),
            state,
        }))
    }

    fn unpack(&self, packed: &Packed) -> Result<(), String> {
        let state = postcard::from_bytes(&packed.state).map_err(text)?;
        let sections: BTreeMap<u16, u32> = packed.sections.iter().copied().collect();
        let extra =
            (!sections.is_empty()).then(|| Box::new(Extra { sections, ..Extra::default() }));
        let Packed { heard, rounds, .. } = *packed;
        let slot = Slot { state, heard, rounds, load: 0, extra };
        self.slots.borrow_mut().insert(packed.element, slot);
        Ok(())
    }

    fn state(&self, element: u32) -> Option<Result<Vec<u8>, String>> {
        let slots = self.slots.borrow();
        slots.get(&element).map(|slot| postcard::to_allocvec(&slot.state).map_err(text))
    }

    fn add_load(&self, element: u32, time: Duration) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(&element) {
            slot.load += time.as_nanos() as u64;
        }
    }

    fn clear(&self) {
        self.slots.borrow_mut().clear();
    }

    fn take_measured(&self) -> Vec<Measured> {
        let mut slots = self.slots.borrow_mut();
        let measured = slots.iter_mut().map(|(element, slot)| {
            let sends = slot.extra.as_mut().map(|extra| std::mem::take(&mut extra.sends));
            let sends = sends.unwrap_or_default().into_iter().collect();
            Measured { element: *element, load: std::mem::take(&mut slot.load), sends }
        });
        measured.collect()
    }
}
