//! The objects that callers hold, by the class that libfabric has for each.

use crate::abi::*;
use crate::events::Events;
use crate::lock::Lock;
use crate::region::Region;
use crate::worker::{Addresses, Counter, Domain, Queue, Worker};
use libc::c_int;
use std::rc::Rc;
use std::sync::Arc;

/// An object that callers hold, behind the structure that libfabric has for it.
///
/// # Safety
/// No other type has the class, and the structure begins with a `Fid`.
pub unsafe trait Object {
    /// The class of the objects.
    const CLASS: usize;
    /// The structure of libfabric, which begins with a `Fid`.
    type Head;

    /// Returns the domain that it belongs to, if it does.
    fn domain(&self) -> Option<&Arc<Domain>> {
        None
    }

    /// Returns the lock that admits callers to the object, if there is one.
    #[inline]
    fn lock(&self) -> Option<&Lock> {
        self.domain().map(|domain| &domain.lock)
    }

    /// Ends the work of the object, which is freed then.
    ///
    /// # Errors
    /// `FI_EBUSY`: others use it.
    fn close(&self) -> Result<(), c_int>;
}

/// Returns an error if an object has more users than the caller.
fn alone(users: usize) -> Result<(), c_int> {
    match users {
        0 | 1 => Ok(()),
        _ => Err(err::EBUSY),
    }
}

/// A fabric; callers open domains and event queues from it.
pub struct Fabric {
    /// Version of the interface the caller was written for.
    pub api: u32,
}

/// Memory that a caller has registered.
pub struct Registered {
    pub domain: Arc<Domain>,
    pub region: Rc<Region>,
}

// SAFETY: the class is libfabric's for this structure, and this type's alone.
unsafe impl Object for Fabric {
    const CLASS: usize = class::FABRIC;
    type Head = FidFabric;

    fn close(&self) -> Result<(), c_int> {
        Ok(())
    }
}

// SAFETY: the class is libfabric's for this structure, and this type's alone.
unsafe impl Object for Arc<Domain> {
    const CLASS: usize = class::DOMAIN;
    type Head = FidDomain;

    fn lock(&self) -> Option<&Lock> {
        Some(&self.lock)
    }

    fn close(&self) -> Result<(), c_int> {
        alone(Arc::strong_count(self))
    }
}

// SAFETY: the class is libfabric's for this structure, and this type's alone.
unsafe impl Object for Arc<Events> {
    const CLASS: usize = class::EQ;
    type Head = FidEq;

    fn close(&self) -> Result<(), c_int> {
        alone(Arc::strong_count(self))
    }
}

// SAFETY: the class is libfabric's for this structure, and this type's alone.
unsafe impl Object for Registered {
    const CLASS: usize = class::MR;
    type Head = FidMr;

    fn domain(&self) -> Option<&Arc<Domain>> {
        Some(&self.domain)
    }

    fn close(&self) -> Result<(), c_int> {
        self.domain.unregister(&self.region);
        Ok(())
    }
}

// SAFETY: the class is libfabric's for this structure, and this type's alone.
unsafe impl Object for Rc<Worker> {
    const CLASS: usize = class::EP;
    type Head = FidEp;

    #[inline]
    fn domain(&self) -> Option<&Arc<Domain>> {
        Some(&self.domain)
    }

    fn close(&self) -> Result<(), c_int> {
        Worker::close(self);
        Ok(())
    }
}

/// Implements the trait for objects that others may use.
macro_rules! shared {
    ($($type:ident $class:ident $head:ident $($domain:ident).+;)*) => {$(
        // SAFETY: the class is libfabric's for this structure, and this type's alone.
        unsafe impl Object for Rc<$type> {
            const CLASS: usize = class::$class;
            type Head = $head;

            #[inline]
            fn domain(&self) -> Option<&Arc<Domain>> {
                Some(&self.$($domain).+)
            }

            fn close(&self) -> Result<(), c_int> {
                alone(Rc::strong_count(self))
            }
        }
    )*};
}

shared! {
    Addresses AV FidAv domain;
    Queue CQ FidCq reports.domain;
    Counter CNTR FidCntr reports.domain;
}
