//! Functions that make children.

use std::ffi::CString;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A way to make a child.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// clone(2) of a function, with these flags.
    Function(i32),
    /// clone3(2) by its number.
    Clone3,
    /// clone(2) by its number.
    ByNumber,
    /// clone(2) by its number, with a stack on which the child begins a function.
    ByNumberOnStack,
    /// _Fork(3).
    Fork,
}

impl Way {
    /// Returns the way of a name.
    pub fn of(name: &str) -> Way {
        let (vm, vfork, files) = (libc::CLONE_VM, libc::CLONE_VFORK, libc::CLONE_FILES);
        match name {
            "copy" => Way::Function(0),
            "copy-and-wait" => Way::Function(vfork),
            "vfork" => Way::Function(vm | vfork),
            "beside" => Way::Function(vm),
            "files" => Way::Function(files),
            "files-beside" => Way::Function(files | vm),
            "files-vfork" => Way::Function(files | vm | vfork),
            "clone3" => Way::Clone3,
            "SYS_clone" => Way::ByNumber,
            "SYS_clone-on-stack" => Way::ByNumberOnStack,
            "_Fork" => Way::Fork,
            other => panic!("{other}"),
        }
    }

    /// True if a close of the child is one of its parent too.
    pub fn shares_descriptors(self) -> bool {
        matches!(self, Way::Function(flags) if flags & libc::CLONE_FILES != 0)
    }

    /// True if the library knows what such a child has.
    pub fn is_followed(self) -> bool {
        let waits = libc::CLONE_VM | libc::CLONE_VFORK;
        match self {
            Way::Function(flags) => [0, libc::CLONE_VFORK, waits].contains(&flags),
            way => !matches!(way, Way::ByNumberOnStack),
        }
    }
}

/// The deed of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Nothing,
    Close,
    Become,
    CopyAndBecome,
}

/// A deed, the connection, and the program to become.
struct Deed {
    act: Act,
    fd: RawFd,
    program: CString,
    words: [*const libc::c_char; 2],
}

extern "C" fn does(deed: *mut libc::c_void) -> i32 {
    // SAFETY: the deed of a caller that waits, or a copy of it.
    let deed = unsafe { &*deed.cast::<Deed>() };
    let path = deed.program.as_ptr();
    // SAFETY: C strings, and a null pointer at the end. The child calls what it may.
    unsafe {
        match deed.act {
            Act::Nothing => return 0,
            Act::Close => return libc::close(deed.fd),
            Act::Become => libc::execv(path, deed.words.as_ptr()),
            Act::CopyAndBecome => {
                libc::dup2(deed.fd, 77);
                libc::execvp(path, deed.words.as_ptr())
            }
        };
    }
    1
}

const PAGE: usize = 4096;
/// A small stack, as programs have for children that become other programs.
pub const SMALL: usize = PAGE;

/// Returns the end of a new stack, with a page of nothing before it.
fn stack_of(len: usize) -> *mut libc::c_void {
    let (rights, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, whose first page is made unreadable.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), PAGE + len, rights, kind, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mprotect(at, PAGE, libc::PROT_NONE), 0);
        at.cast::<u8>().add(PAGE + len).cast()
    }
}

extern "C" {
    fn _Fork() -> libc::pid_t;
}

/// Makes a child, which does something.
pub fn child(way: Way, act: Act, fd: RawFd) -> i32 {
    child_of(way, act, fd, "/bin/true", 1 << 16)
}

/// Makes a child in this way that becomes `program`, with a stack of `len` bytes.
pub fn child_of(way: Way, act: Act, fd: RawFd, program: &str, len: usize) -> i32 {
    let program = CString::new(program).unwrap();
    let words = [program.as_ptr(), std::ptr::null()];
    // Children may outlive this call, and the stack.
    let deed = Box::into_raw(Box::new(Deed { act, fd, program, words }));
    let stack = stack_of(len);
    // SAFETY: a stack and a deed that stay; the arguments of clone3(2) are numbers.
    let child = unsafe {
        match way {
            Way::Function(flags) => libc::clone(does, stack, flags | libc::SIGCHLD, deed.cast()),
            Way::Clone3 => {
                let mut args = [0u64; 8];
                args[4] = libc::SIGCHLD as u64;
                returns(libc::syscall(libc::SYS_clone3, args.as_mut_ptr(), 64usize) as i32, deed)
            }
            Way::ByNumber => {
                let flags = libc::SIGCHLD as usize;
                let none = 0usize;
                let child = libc::syscall(libc::SYS_clone, flags, none, none, none, none);
                returns(child as i32, deed)
            }
            Way::ByNumberOnStack => {
                DEED.store(deed, Ordering::Relaxed);
                // The call returns to the address at the end of the stack.
                let stack = stack.cast::<usize>().sub(2);
                stack.write(begins as extern "C" fn() -> ! as usize);
                let (flags, none) = (libc::SIGCHLD as usize, 0usize);
                libc::syscall(libc::SYS_clone, flags, stack, none, none, none) as i32
            }
            Way::Fork => returns(_Fork(), deed),
        }
    };
    assert!(child > 0, "{way:?}: {}", std::io::Error::last_os_error());
    child
}

/// The deed of a child that begins on a stack of its own.
static DEED: AtomicPtr<Deed> = AtomicPtr::new(std::ptr::null_mut());

/// Such a child begins here.
extern "C" fn begins() -> ! {
    let status = does(DEED.load(Ordering::Relaxed).cast());
    // SAFETY: no memory is passed.
    unsafe { libc::_exit(status) }
}

/// Makes a child for which the thread that makes it waits (CLONE_VFORK), with a memory of its own.
/// The child says that it lives, and ends after a byte that comes from elsewhere.
pub fn child_that_is_waited_for(says: RawFd, hears: RawFd) -> i32 {
    extern "C" fn waits(ends: *mut libc::c_void) -> i32 {
        // SAFETY: two descriptors.
        let [says, hears] = unsafe { *ends.cast::<[RawFd; 2]>() };
        let mut byte = [b'x'];
        // SAFETY: a byte that is readable and writable.
        unsafe {
            let said = libc::write(says, byte.as_ptr().cast(), 1);
            i32::from(said != 1 || libc::read(hears, byte.as_mut_ptr().cast(), 1) != 1)
        }
    }
    let mut ends = [says, hears];
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: a new stack, and an argument that lives as long.
    let child = unsafe { libc::clone(waits, stack_of(1 << 16), flags, (&raw mut ends).cast()) };
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    child
}

/// A call that makes a child has returned, in the child or in the parent.
fn returns(child: i32, deed: *mut Deed) -> i32 {
    if child == 0 {
        let status = does(deed.cast());
        // SAFETY: no memory is passed.
        unsafe { libc::_exit(status) };
    }
    child
}
