//! Functions that find functions: dlsym(3) of the C library's own handle, and libraries that are
//! opened so that their own symbols come first (RTLD_DEEPBIND), find this library's functions.
//!
//! The loader looks who has called, so its functions are not called here but gone on to, with all
//! registers and the stack of the caller.

use crate::sys::elf::{Image, Place};
use crate::sys::{guard, real};
use libc::{c_char, c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The loader's functions, once they are known.
static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLVSYM: AtomicUsize = AtomicUsize::new(0);
static DLOPEN: AtomicUsize = AtomicUsize::new(0);
/// 1 if a library was opened whose own symbols come first, and nobody has looked at it since.
static IS_DEEP: AtomicU32 = AtomicU32::new(0);

/// An object, its segments and the address of the first byte behind it.
struct Object<'a> {
    image: Image,
    segments: &'a [libc::Elf64_Phdr],
    bias: usize,
}

impl Object<'_> {
    /// True if an address is in one of its segments.
    fn has(&self, at: usize) -> bool {
        self.is_in(libc::PT_LOAD, at)
    }

    fn is_in(&self, kind: u32, at: usize) -> bool {
        self.segments.iter().filter(|one| one.p_type == kind).any(|one| {
            let from = self.bias + one.p_vaddr as usize;
            (from..from + one.p_memsz as usize).contains(&at)
        })
    }
}

/// Calls `each` with the objects of this process, in the order of a search, until it returns true.
fn each_object(mut each: impl FnMut(Object<'_>) -> bool) {
    type Each<'a> = &'a mut dyn FnMut(Object<'_>) -> bool;
    unsafe extern "C" fn one(info: *mut dl_phdr_info, _: size_t, each: *mut c_void) -> c_int {
        // SAFETY: the loader's description, and the function below.
        unsafe {
            let (info, each) = (&*info, &mut *each.cast::<Each<'_>>());
            let (bias, count) = (info.dlpi_addr as usize, info.dlpi_phnum as usize);
            if info.dlpi_phdr.is_null() {
                return 0;
            }
            let segments = std::slice::from_raw_parts(info.dlpi_phdr, count);
            let image = Image::of(bias, segments);
            image.is_some_and(|image| each(Object { image, segments, bias })).into()
        }
    }
    let mut each: Each<'_> = &mut each;
    // SAFETY: the function, and its argument, which lives as long.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut each).cast()) };
}

/// The address of something in this library.
fn own() -> usize {
    (&raw const DLSYM).addr()
}

/// Returns the address of the next function of this name after this library's.
pub(super) fn behind(name: &[u8], known: &AtomicUsize) -> usize {
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
    // SAFETY: a C string. The search begins behind this library, which calls.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    (next.addr() == found && hook != found).then_some(hook)
}

/// The place to go on at, or a result where that is 0.
#[repr(C)]
struct Next {
    to: usize,
    result: usize,
}

/// True for handles that stand for a search, which finds this library.
fn is_search(handle: *mut c_void) -> bool {
    handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT
}

/// Returns the name of a caller, if it is there.
///
/// # Safety
/// The caller's text.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the caller's text.
    unsafe { (!name.is_null()).then(|| CStr::from_ptr(name)) }
}

extern "C" fn before_dlsym(handle: *mut c_void, name: *const c_char) -> Next {
    looks_at_deep();
    let to = behind(b"dlsym", &DLSYM);
    type Function = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the caller's text; the loader's function of this type.
    let hook = unsafe {
        text(name).filter(|_| to != 0 && !is_search(handle)).and_then(|text| {
            hook_of(text)?;
            let found = std::mem::transmute::<usize, Function>(to)(handle, name);
            replaced(text, found.addr())
        })
    };
    goes_on(to, hook)
}

extern "C" fn before_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Next {
    looks_at_deep();
    let to = behind(b"dlvsym", &DLVSYM);
    type Function = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    // SAFETY: as above.
    let hook = unsafe {
        text(name).filter(|_| to != 0 && !is_search(handle)).and_then(|text| {
            hook_of(text)?;
            let found = std::mem::transmute::<usize, Function>(to)(handle, name, version);
            replaced(text, found.addr())
        })
    };
    goes_on(to, hook)
}

fn goes_on(to: usize, hook: Option<usize>) -> Next {
    match (hook, to) {
        (Some(result), _) => Next { to: 0, result },
        // A loader without the function.
        (None, 0) => Next { to: 0, result: 0 },
        (None, to) => Next { to, result: 0 },
    }
}

extern "C" fn before_dlopen(_: *const c_char, flags: c_int) -> Next {
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
    // SAFETY: a place of the object, which the loader has filled.
    let now = unsafe { place.at.read() };
    let is_first = || {
        // SAFETY: a C string.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, place.name.as_ptr()) }.addr() == hook
    };
    let is_open = place.is_call && object.has(now) && is_first();
    if now == hook || !is_open && replaced(place.name, now) != Some(hook) {
        return;
    }
    // The loader takes the right to write away from places that it has filled for good.
    let is_kept = object.is_in(libc::PT_GNU_RELRO, place.at.addr());
    let page = place.at.map_addr(|at| at & !(PAGE - 1)).cast::<c_void>();
    // SAFETY: the page of the place; a write of an address is whole.
    unsafe {
        if is_kept && libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return;
        }
        guard::write(place.at, hook);
        if is_kept {
            libc::mprotect(page, PAGE, libc::PROT_READ);
        }
    }
}

/// The size of a page on the machines that this library is built for, or a part of it.
const PAGE: usize = 4096;

/// Defines a function that calls another one, and goes on where it says, or returns its result.
macro_rules! found {
    ($(#[doc = $doc:literal] $name:ident: $before:ident;)*) => {
        $(
            #[doc = $doc]
            ///
            /// # Safety
            /// The caller keeps the rules of the loader's function.
            #[no_mangle]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "sub rsp, 40",
                    "mov [rsp], rdi",
                    "mov [rsp + 8], rsi",
                    "mov [rsp + 16], rdx",
                    "call {before}",
                    "mov rcx, rax",
                    "mov rax, rdx",
                    "mov rdi, [rsp]",
                    "mov rsi, [rsp + 8]",
                    "mov rdx, [rsp + 16]",
                    "add rsp, 40",
                    "test rcx, rcx",
                    "je 2f",
                    "jmp rcx",
                    "2:",
                    "ret",
                    before = sym $before,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "stp x29, x30, [sp, -48]!",
                    "mov x29, sp",
                    "stp x0, x1, [sp, 16]",
                    "str x2, [sp, 32]",
                    "bl {before}",
                    "mov x16, x0",
                    "mov x17, x1",
                    "ldp x0, x1, [sp, 16]",
                    "ldr x2, [sp, 32]",
                    "ldp x29, x30, [sp], 48",
                    "cbz x16, 2f",
                    "br x16",
                    "2:",
                    "mov x0, x17",
                    "ret",
                    before = sym $before,
                );
            }
        )*
    };
}

found! {
    #[doc = "dlsym(3)."] dlsym: before_dlsym;
    #[doc = "dlvsym(3)."] dlvsym: before_dlvsym;
    #[doc = "dlopen(3)."] dlopen: before_dlopen;
}
