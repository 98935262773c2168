//! Detects by the kernel's event that this virtual machine was cloned or restored from a snapshot.
//!
//! Hypervisors that offer a generation id (VMGENID) change it in the copy; the kernel's driver then
//! sends an event. There is a short time between the copy's first instruction and the event. Many
//! machines have no such device: a copy of those is not detected.

use super::sys::{self, Events};
use std::fs;
use std::thread;

/// Folders in which the kernel lists the devices of its driver.
const DRIVERS: [&str; 2] = ["/sys/bus/acpi/drivers/vmgenid", "/sys/bus/platform/drivers/vmgenid"];
/// The text of the event.
const NOTICE: &[u8] = b"NEW_VMGENID=1";
/// Stack size of the thread that listens, in bytes.
const STACK: usize = 64 << 10;

/// True if the kernel reports clones of this machine.
fn is_reported() -> bool {
    let devices = DRIVERS.iter().filter_map(|driver| fs::read_dir(driver).ok()).flatten();
    // The folder also holds the driver's own switches, which are files, and its module.
    devices.filter_map(Result::ok).any(|entry| {
        entry.file_name() != "module" && entry.file_type().is_ok_and(|kind| kind.is_symlink())
    })
}

/// True if an event of the kernel reports that this machine was cloned.
fn is_notice(event: &[u8]) -> bool {
    event.split(|&byte| byte == 0).any(|word| word == NOTICE)
}

/// Starts a thread that invalidates all open objects of this process when the machine is cloned, if
/// the kernel reports clones.
pub(super) fn watch() {
    if !is_reported() {
        return;
    }
    let listening = Events::open().and_then(|events| {
        let listen = move || {
            sys::take_no_signals();
            while let Some(event) = events.next() {
                if is_notice(&event) {
                    super::cloned();
                }
            }
        };
        let thread = thread::Builder::new()
            .name("weft clones".into())
            .stack_size(weft_sys::threads::stack(STACK));
        thread.spawn(listen).map(drop)
    });
    if let Err(why) = listening {
        log::debug!("a clone of this machine would not be noticed: {why}");
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn is_notice__of_the_generation_and_nothing_else() {
        let event = |more: &str| {
            let head = "change@/devices/platform/vmgenid\0ACTION=change\0SUBSYSTEM=platform\0";
            format!("{head}{more}SEQNUM=4711\0").into_bytes()
        };
        assert!(is_notice(&event("NEW_VMGENID=1\0")));
        for other in ["", "NEW_VMGENID=1", "XNEW_VMGENID=1\0", "NEW_VMGENID=12\0"] {
            assert!(!is_notice(&event(other)), "{other}");
        }
        assert!(!is_notice(b""));
    }
}
