//! A terminal that is drawn again and again, and given back as it was.

use anyhow::{Context, Result};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::termios::{tcgetattr, tcsetattr, LocalModes, OptionalActions, Termios};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Standard output, drawn over when it is a terminal; standard input, read key by key.
pub struct Screen {
    draw: bool,
    /// The terminal's settings before.
    before: Option<Termios>,
    stop: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal; draws over it if there is one and `draw`.
    pub fn open(draw: bool) -> Result<Screen> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, stop.clone()).context("catching signals")?;
        }
        let stdin = std::io::stdin();
        let before = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
        if let Some(settings) = &before {
            let mut keys = settings.clone();
            keys.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            tcsetattr(&stdin, OptionalActions::Now, &keys).context("setting the terminal")?;
        }
        let draw = draw && std::io::stdout().is_terminal();
        let screen = Screen { draw, before, stop };
        if draw {
            // The alternate screen, without cursor.
            print!("\x1b[?1049h\x1b[?25l");
        }
        Ok(screen)
    }

    /// Shows a text in place of the one before.
    pub fn show(&mut self, text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        if self.draw {
            write!(out, "\x1b[H")?;
            for line in text.lines() {
                writeln!(out, "{line}\x1b[K")?;
            }
            write!(out, "\x1b[K\nq or Ctrl-C ends\x1b[K\x1b[J")?;
        } else {
            write!(out, "{text}")?;
        }
        out.flush().context("writing")
    }

    /// Waits; true when the user wants to end.
    pub fn wait(&mut self, time: Duration) -> Result<bool> {
        let until = Instant::now() + time;
        let stdin = std::io::stdin();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.stop.load(Ordering::Relaxed) || left.is_zero() {
                return Ok(self.stop.load(Ordering::Relaxed));
            }
            let timeout =
                Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            // Only a terminal is asked for keys.
            let keys = self.before.is_some();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            let fds = if keys { &mut fds[..] } else { &mut fds[..0] };
            match poll(fds, Some(&timeout)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => {
                    let mut key = [0];
                    let read = stdin.lock().read(&mut key).unwrap_or(0);
                    if read == 0 || key[0] == b'q' {
                        return Ok(true);
                    }
                }
                Err(error) => return Err(error).context("waiting for a key"),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.draw {
            print!("\x1b[?25h\x1b[?1049l");
            let _ = std::io::stdout().flush();
        }
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}
