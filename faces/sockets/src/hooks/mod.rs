//! The functions that programs call instead of those of the C library, a module for each kind.
//! `sys` has the functions themselves; the others have their work.

mod data;
mod leave;
mod life;
mod messages;
mod number;
mod options;
mod process;
mod programs;
mod quick;
mod rings;
mod signals;
mod symbols;
mod sys;
mod waits;
mod whole;

use crate::sys::{clock, real};
use crate::{guard, holders, kept, owner, settings, slot, target, tipc};

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
        process::begin();
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
