//! Functions that find functions: dlsym(3) of the C library's own handle, and libraries that are
//! opened so that their own symbols come first (RTLD_DEEPBIND), find this library's functions.
//!
//! The loader looks who has called, so its functions are not called here but gone on to, with all
//! registers and the stack of the caller.

use crate::guard::Caller;
use crate::sys::elf::{self, each_object, Object, Place};
use crate::sys::real;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The loader's functions, once they are known.
static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLVSYM: AtomicUsize = AtomicUsize::new(0);
static DLOPEN: AtomicUsize = AtomicUsize::new(0);
/// 1 if a library was opened whose own symbols come first, and nobody has looked at it since.
static IS_DEEP: AtomicU32 = AtomicU32::new(0);

impl Object<'_> {
    /// True if an address is in one of its segments.
    fn has(&self, at: usize) -> bool {
        self.is_in(libc::PT_LOAD, at)
    }

    /// True if an address is in one of its segments of this kind.
    fn is_in(&self, kind: u32, at: usize) -> bool {
        self.segments.iter().filter(|one| one.p_type == kind).any(|one| {
            let from = self.bias + one.p_vaddr as usize;
            (from..from + one.p_memsz as usize).contains(&at)
        })
    }
}

/// The address of something in this library.
fn own() -> usize {
    (&raw const DLSYM).addr()
}

/// Returns the address of the next function of this name after this library's.
pub fn behind(name: &[u8], known: &AtomicUsize) -> usize {
    let found = known.load(Ordering::Relaxed);
    if found != 0 {
        return found;
    }
    let (mut is_behind, mut found) = (false, 0);
    each_object(|object| {
        match is_behind {
            false => is_behind = object.has(own()),
            true => found = object.image.find(name).unwrap_or(0),
        }
        found != 0
    });
    known.store(found, Ordering::Relaxed);
    found
}

/// Returns this library's function of a name.
fn hook_of(name: &CStr) -> Option<usize> {
    let mut found = None;
    each_object(|object| {
        let is_own = object.has(own());
        if is_own {
            found = object.image.find(name.to_bytes());
        }
        is_own
    });
    found
}

/// Returns this library's function, if a program has found the one that it stands before.
fn replaced(name: &CStr, found: usize) -> Option<usize> {
    let hook = hook_of(name).filter(|_| found != 0)?;
    (elf::next_of(name) == found && hook != found).then_some(hook)
}

/// The place to go on at, or a result where that is 0.
#[repr(C)]
pub struct Next {
    to: usize,
    result: usize,
}

/// True for handles that stand for a search, which finds this library.
fn is_search(handle: *mut c_void) -> bool {
    handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT
}

/// Returns where dlsym(3) or dlvsym(3) goes on, which is `behind` this library. `find` calls it.
pub fn finds(
    handle: *mut c_void,
    name: Caller<c_char>,
    to: usize,
    find: impl FnOnce() -> usize,
) -> Next {
    looks_at_deep();
    let text = name.text().filter(|_| to != 0 && !is_search(handle));
    let hook = text.and_then(|text| {
        hook_of(text)?;
        replaced(text, find())
    });
    goes_on(to, hook)
}

/// Returns the loader's dlsym(3); 0: there is none.
pub fn dlsym() -> usize {
    behind(b"dlsym", &DLSYM)
}

/// Returns the loader's dlvsym(3); 0: there is none.
pub fn dlvsym() -> usize {
    behind(b"dlvsym", &DLVSYM)
}

fn goes_on(to: usize, hook: Option<usize>) -> Next {
    match (hook, to) {
        (Some(result), _) => Next { to: 0, result },
        // A loader without the function.
        (None, 0) => Next { to: 0, result: 0 },
        (None, to) => Next { to, result: 0 },
    }
}

/// Returns where dlopen(3) goes on.
pub fn opens(flags: c_int) -> Next {
    if flags & libc::RTLD_DEEPBIND != 0 {
        IS_DEEP.store(1, Ordering::Release);
    }
    goes_on(behind(b"dlopen", &DLOPEN), None)
}

/// Libraries whose own symbols come first find the C library's functions before this library's.
/// They get this library's when they are first looked at, as a program does before it uses one.
fn looks_at_deep() {
    if IS_DEEP.load(Ordering::Relaxed) == 0 || IS_DEEP.swap(0, Ordering::AcqRel) == 0 {
        return;
    }
    let was = real::errno();
    let c_library = real::address_of(c"recv").addr();
    each_object(|object| {
        if !object.has(own()) && !object.has(c_library) {
            object.image.each_place(|place| fill(&object, &place));
        }
        false
    });
    real::set_errno(was);
}

/// Has a place of an object lead to this library's function, if it leads, or would lead at the
/// first call, to the one behind it.
fn fill(object: &Object<'_>, place: &Place<'_>) {
    let Some(hook) = hook_of(place.name) else { return };
    let now = place.value();
    let is_first = || elf::first_of(place.name) == hook;
    let is_open = place.is_call && object.has(now) && is_first();
    if now == hook || !is_open && replaced(place.name, now) != Some(hook) {
        return;
    }
    // The loader takes the right to write away from places that it has filled for good.
    place.set(hook, object.is_in(libc::PT_GNU_RELRO, place.address()));
}
