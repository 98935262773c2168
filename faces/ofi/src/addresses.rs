//! Address vectors, as their callers fill them.

use crate::abi::{cap, err, AvAttr, Fid, ADDR_NONE, EVENT_AV_COMPLETE};
use crate::domain::Domain;
use crate::events::Events;
use crate::memory::Borrowed;
use crate::name::{self, Name, NameError};
use crate::vector::Vector;
use libc::{c_int, c_void};
use std::cell::RefCell;
use std::sync::Arc;

/// An address vector.
pub struct Addresses<M> {
    pub domain: Arc<Domain<M>>,
    pub vector: RefCell<Vector>,
    events: RefCell<Option<Arc<Events>>>,
    is_async: bool,
}

impl<M> Addresses<M> {
    /// Creates an empty vector.
    ///
    /// # Errors
    /// `FI_ENOSYS`: vectors shared between processes or for several receive contexts are not
    /// offered.
    pub fn new(domain: Arc<Domain<M>>, attr: &AvAttr) -> Result<Addresses<M>, c_int> {
        if !attr.name.is_null() || attr.rx_ctx_bits != 0 {
            return Err(err::ENOSYS);
        }
        Ok(Addresses {
            domain,
            vector: RefCell::default(),
            events: RefCell::default(),
            is_async: attr.flags & cap::COMPLETION != 0,
        })
    }

    /// Binds an event queue, to which insertions are reported.
    pub fn use_events(&self, events: Arc<Events>) {
        *self.events.borrow_mut() = Some(events);
    }

    /// Inserts names. Stores their numbers and, where the caller has room for `errors`, the error
    /// of each; reports to the event queue as `fid` with `context`. Returns the number of names
    /// that were inserted.
    pub fn insert(
        &self,
        names: &[Name],
        mut numbers: Option<&mut [u64]>,
        mut errors: Option<&mut [c_int]>,
        (fid, context): (*mut Fid, *mut c_void),
    ) -> Result<c_int, c_int> {
        let events = self.events.borrow().clone();
        if self.is_async && events.is_none() {
            return Err(err::ENOEQ);
        }
        let mut vector = self.vector.borrow_mut();
        let (mut good, mut other) = (0, false);
        for (i, name) in names.iter().enumerate() {
            let inserted = vector.insert(name);
            match &inserted {
                Ok(_) => good += 1,
                Err(why) => {
                    log::error!("address {i} of {}: {why}", names.len());
                    other |= matches!(why, NameError::Version(_) | NameError::Key);
                }
            }
            let error = if inserted.is_ok() { 0 } else { err::EINVAL };
            if let Some(numbers) = &mut numbers {
                numbers[i] = inserted.unwrap_or(ADDR_NONE);
            }
            match (&mut errors, &events) {
                (Some(errors), _) => errors[i] = error,
                (None, Some(events)) if error != 0 => events.fail(fid, context, i as u64, error),
                _ => {}
            }
        }
        match events {
            Some(events) if self.is_async => {
                events.add(EVENT_AV_COMPLETE, fid, context, good as u64);
                Ok(0)
            }
            // MPIs do not check the count of inserted names: ranks of mixed versions or keys would
            // wait forever.
            _ if other && errors.is_none() => Err(err::EINVAL),
            _ => Ok(good),
        }
    }

    /// Takes back one insertion of each number.
    pub fn remove(&self, numbers: &[u64]) -> Result<c_int, c_int> {
        let mut vector = self.vector.borrow_mut();
        match numbers.iter().all(|number| vector.remove(*number)) {
            true => Ok(0),
            false => Err(err::EINVAL),
        }
    }

    /// Copies as much of the name with a number as has room; returns its length.
    pub fn look_up(&self, number: u64, room: Borrowed) -> Result<usize, c_int> {
        let vector = self.vector.borrow();
        let name = vector.name(number).ok_or(err::EINVAL)?;
        room.write(name);
        Ok(name.len())
    }
}

/// Returns a text of a name, for people.
pub fn text_of(name: &Name) -> String {
    match name::decode(name) {
        Ok(address) => format!("weft://{address}"),
        Err(why) => format!("weft://? ({why})"),
    }
}
