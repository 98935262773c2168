//! A domain that another thread visits.

use super::Visited;

/// A pointer to a domain of the list.
pub struct Pointer(*const dyn Visited);

// SAFETY: it is used under the lock of the list alone, and leaves the list, under that lock, before
// the domain is freed; the domain is used under its lock, or where its fields are atomic.
unsafe impl Send for Pointer {}

impl Pointer {
    /// Points to a domain, which leaves the list before it is freed.
    pub fn to(domain: &(impl Visited + 'static)) -> Pointer {
        Pointer(std::ptr::from_ref(domain))
    }

    /// Returns true if it points to this domain.
    pub fn is<T>(&self, domain: &T) -> bool {
        std::ptr::addr_eq(self.0, domain)
    }

    /// Returns the domain.
    pub fn get(&self) -> &dyn Visited {
        // SAFETY: domains in the list exist.
        unsafe { &*self.0 }
    }
}
