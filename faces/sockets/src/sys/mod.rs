//! All of the library: every part of it calls the C library or uses memory that others change.

mod affinity;
mod board;
mod clock;
mod elf;
mod giving;
mod guard;
mod holders;
mod hooks;
mod kept;
mod line;
mod lock;
mod look;
mod masked;
mod owner;
mod parts;
mod program;
mod real;
mod rings;
mod room;
mod set;
mod settings;
mod signals;
mod slot;
mod stream;
mod table;
mod target;
mod tcp;
mod tipc;
mod urgent;
mod vfork;
mod wait;
mod wake;
mod why;

/// Called by the loader before the program.
extern "C" fn begin() {
    clock::begin();
    real::look_up_all();
    settings::read();
    target::begin();
    if settings::is_on() && slot::map() {
        slot::region().iter().for_each(|region| holders::begin(region));
        owner::begin();
        guard::look();
        hooks::process::begin();
        tipc::begin();
        kept::begin(true);
    } else {
        kept::begin(false);
    }
}

/// The loader calls what is here.
#[used]
#[link_section = ".init_array"]
static BEGIN: extern "C" fn() = begin;
