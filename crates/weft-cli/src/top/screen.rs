//! A terminal that is drawn again and again, and given back as it was.

use super::table::{Key, Size};
use anyhow::{Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::termios::{
    tcgetattr, tcgetwinsize, tcsetattr, LocalModes, OptionalActions, SpecialCodeIndex, Termios,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use std::io::{IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

/// A terminal that does not say how large it is.
const USUAL: Size = Size { width: 80, height: 24 };

/// Standard output, a terminal that is drawn over; standard input, read key by key if it is one.
pub struct Screen {
    /// The settings of the terminal for input, before.
    before: Option<Termios>,
    stop: Arc<AtomicBool>,
    resized: Arc<AtomicBool>,
    /// Keys that were read and not yet taken.
    keys: Vec<u8>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The time is over.
    Nothing,
    /// The user wants to move or to sort.
    Key(Key),
    /// The terminal has another size.
    Resized,
    /// The user wants to end.
    End,
}

/// The first key among bytes of a terminal, if it means something here, and how many bytes it is.
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
        // Another sequence of a terminal ends in a letter or a tilde.
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|b| (0x40..=0x7e).contains(b));
            (None, 2 + end.map_or(rest.len(), |at| at + 1))
        }
        _ => (None, 1),
    }
}

impl Screen {
    /// Takes the terminal that is standard output; `None` if it is none.
    pub fn open() -> Result<Option<Screen>> {
        if !std::io::stdout().is_terminal() {
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
        let stdin = std::io::stdin();
        let before = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
        if let Some(settings) = &before {
            let mut keys = settings.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // A read returns what is there.
            keys.special_codes[SpecialCodeIndex::VMIN] = 1;
            keys.special_codes[SpecialCodeIndex::VTIME] = 0;
            tcsetattr(&stdin, OptionalActions::Now, &keys).context("setting the terminal")?;
        }
        // The alternate screen, without cursor.
        print!("\x1b[?1049h\x1b[?25l");
        Ok(Some(Screen { before, stop, resized, keys: Vec::new() }))
    }

    /// How much a page may hold.
    pub fn size(&self) -> Size {
        match tcgetwinsize(std::io::stdout()) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
                Size { width: size.ws_col.into(), height: size.ws_row.into() }
            }
            _ => USUAL,
        }
    }

    /// Shows a page in place of the one before.
    pub fn show(&mut self, page: &str) {
        // Each line is erased before it is written: after a full one the cursor stands on its last
        // character.
        let lines: Vec<String> = page.lines().map(|line| format!("\x1b[K{line}")).collect();
        print!("\x1b[H\x1b[J{}", lines.join("\n"));
        crate::out::flush();
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
            // Only a terminal is asked for keys.
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
        // A terminal that is gone needs nothing back.
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
