//! A terminal that is redrawn repeatedly, and restored at the end.

use super::table::{Key, Size};
use anyhow::{Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::getpgrp;
use rustix::termios::{
    tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr, LocalModes, OptionalActions, SpecialCodeIndex,
    Termios,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::io::{IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// Size of a terminal that does not report one.
const USUAL: Size = Size { width: 80, height: 24 };

/// Standard output, a terminal that is redrawn; standard input, read by keys if it is a terminal.
pub struct Screen {
    /// The earlier settings of the terminal for input.
    before: Option<Termios>,
    stop: Arc<AtomicBool>,
    resized: Arc<AtomicBool>,
    /// Keys that were read and not yet handled.
    keys: Vec<u8>,
}

/// Reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The time is over.
    Nothing,
    /// A key to move or to sort.
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// The user wants to end.
    End,
}

/// Returns the first key among bytes of a terminal, if it has a function here, and its length in
/// bytes.
fn key(bytes: &[u8]) -> (Option<Heard>, usize) {
    let key = |key, len| (Some(Heard::Key(key)), len);
    match bytes {
        [b'q', ..] => (Some(Heard::End), 1),
        [b's', ..] => key(Key::Sort, 1),
        [b'j', ..] => key(Key::Lines(1), 1),
        [b'k', ..] => key(Key::Lines(-1), 1),
        [b' ', ..] => key(Key::Pages(1), 1),
        [b'b', ..] => key(Key::Pages(-1), 1),
        [b'g', ..] => key(Key::Lines(isize::MIN), 1),
        [b'G', ..] => key(Key::Lines(isize::MAX), 1),
        [0x1b, b'[' | b'O', b'A', ..] => key(Key::Lines(-1), 3),
        [0x1b, b'[' | b'O', b'B', ..] => key(Key::Lines(1), 3),
        [0x1b, b'[' | b'O', b'H', ..] => key(Key::Lines(isize::MIN), 3),
        [0x1b, b'[' | b'O', b'F', ..] => key(Key::Lines(isize::MAX), 3),
        [0x1b, b'[', b'5', b'~', ..] => key(Key::Pages(-1), 4),
        [0x1b, b'[', b'6', b'~', ..] => key(Key::Pages(1), 4),
        // Any other escape sequence ends in a letter or a tilde.
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|b| (0x40..=0x7e).contains(b));
            (None, 2 + end.map_or(rest.len(), |at| at + 1))
        }
        _ => (None, 1),
    }
}

impl Screen {
    /// Opens the terminal at standard output; `None` if that is no terminal, or this process is in
    /// its background, as under `timeout`: there the kernel stops a process that sets the terminal,
    /// each time, so that SIGTERM would not end it either.
    pub fn open() -> Result<Option<Screen>> {
        let stdin = std::io::stdin();
        let is_behind = tcgetpgrp(&stdin).is_ok_and(|group| group != getpgrp());
        if is_behind || !std::io::stdout().is_terminal() {
            return Ok(None);
        }
        let flag = |signals: &[i32]| -> Result<Arc<AtomicBool>> {
            let flag = Arc::new(AtomicBool::new(false));
            for &signal in signals {
                signal_hook::flag::register(signal, flag.clone()).context("catching signals")?;
            }
            Ok(flag)
        };
        let (stop, resized) = (flag(&[SIGINT, SIGTERM, SIGHUP])?, flag(&[SIGWINCH])?);
        let before = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
        if let Some(settings) = &before {
            let mut keys = settings.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read returns at once with the bytes available.
            keys.special_codes[SpecialCodeIndex::VMIN] = 1;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(&stdin, OptionalActions::Now, &keys).context("setting the terminal")?;
        }
        // The alternate screen, without cursor.
        print!("\x1b[?1049h\x1b[?25l");
        Ok(Some(Screen { before, stop, resized, keys: Vec::new() }))
    }

    /// Returns the size of a page.
    pub fn size(&self) -> Size {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { width: size.ws_col.into(), height: size.ws_row.into() }
            }
            _ => USUAL,
        }
    }

    /// Shows a page in place of the last one.
    pub fn show(&mut self, page: &str) {
        // Each line is erased before it is written: after a full line the cursor is on its last
        // character.
        let lines: Vec<String> = page.lines().map(|line| format!("\x1b[K{line}")).collect();
        print!("\x1b[H\x1b[J{}", lines.join("\n"));
        weft_run::out::flush();
    }

    /// Waits for a key, another size or the end of the time.
    pub fn wait(&mut self, until: Instant) -> Result<Heard> {
        let stdin = std::io::stdin();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(Heard::End);
            }
            if self.resized.swap(false, Ordering::Relaxed) {
                return Ok(Heard::Resized);
            }
            while !self.keys.is_empty() {
                let (heard, bytes) = key(&self.keys);
                self.keys.drain(..bytes);
                if let Some(heard) = heard {
                    return Ok(heard);
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Heard::Nothing);
            }
            let timeout =
                Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            // Keys are read only from a terminal.
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            let fds = if self.before.is_some() { &mut fds[..] } else { &mut fds[..0] };
            match poll(fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let mut bytes = [0; 64];
                    let read = stdin.lock().read(&mut bytes).unwrap_or(0);
                    if read == 0 {
                        return Ok(Heard::End);
                    }
                    self.keys.extend(&bytes[..read]);
                }
                Err(error) => return Err(error).context("waiting for a key"),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        let mut out = std::io::stdout();
        let _ = out.write_all(b"\x1b[?25h\x1b[?1049l").and_then(|()| out.flush());
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn key__understands_letters_and_sequences() {
        let keys = |mut bytes: &[u8]| {
            let mut heard = Vec::new();
            while !bytes.is_empty() {
                let (found, len) = key(bytes);
                heard.extend(found);
                bytes = &bytes[len..];
            }
            heard
        };
        let moved = |lines| Heard::Key(Key::Lines(lines));
        assert_eq!(keys(b"x\x1b[B\x1b[6~sq"), {
            [moved(1), Heard::Key(Key::Pages(1)), Heard::Key(Key::Sort), Heard::End]
        });
        assert_eq!(keys(b"\x1b[15~\x1b[1;5Aq"), [Heard::End], "keys that mean nothing");
        assert_eq!(
            keys(b"\x1b[A\x1bOBgG"),
            [moved(-1), moved(1), moved(isize::MIN), moved(isize::MAX)]
        );
        assert_eq!(keys(b"\x1b\x1b["), []);
    }
}
