//! `myriexpress.h` in frames of MX over Ethernet, by the tunings of `WEFT_MXOE`.

use super::adopt;
use super::sys::Mx;
use super::{Face, Faces};
use crate::netns::Place;
use crate::own::opened;
use crate::pair::Subject;
use crate::rank::{Channel, Outcome, Probe, Rank, Task};
use crate::table::Better;
use crate::target::{Aim, Run};
use crate::volley::volley;
use crate::wire;
use anyhow::{Context, Result};

/// Tunings of long messages in frames of MX over Ethernet, as of `WEFT_MXOE`: the first is that of
/// the paper without a copy engine, the last one with the overlap of copies.
pub const TUNINGS: [(&str, &str); 3] = [
    ("MX in frames of MXoE, copied", "send=copy,receive=place"),
    ("MX in frames of MXoE, gathered", "send=gather,receive=place"),
    ("MX in frames of MXoE, a second core copies", "send=gather,receive=core"),
];
/// Sizes of messages.
pub const SIZES: [usize; 4] = [16, 4 << 10, 64 << 10, 1 << 20];

/// Returns the endpoint with a tuning; both ranks open it at its first use.
///
/// # Errors
/// No interface, rights or other rank.
pub fn open(rank: &mut Rank, number: u64) -> Result<Mx> {
    if let Some((_, mx)) = opened::<Faces>(rank)?.wired.take().filter(|(of, _)| *of == number) {
        return Ok(mx);
    }
    adopt(rank);
    let interface = wire::interface_of(rank)?;
    let (_, tuning) = TUNINGS.get(number as usize).context("no such tuning")?;
    std::env::set_var("WEFT_MXOE", format!("{},{tuning}", interface.name));
    // Numbers that no other endpoint of the rank has.
    let first = (u32::from(rank.key()[0]) & !7) ^ 0x40;
    let of_rank = |of: usize| first + 2 * number as u32 + of as u32;
    // The interface of the setting is the first board.
    let opened = Mx::open_board(0, of_rank(rank.me));
    std::env::remove_var("WEFT_MXOE");
    let mut mx = opened?;
    let theirs: [u8; 6] =
        rank.exchange(&interface.mac.0)?.try_into().ok().context("a note of 6 bytes")?;
    if rank.me == 0 {
        mx.connect_nic(weft_mx::wire::setting::nic_of(theirs), of_rank(1))?;
    }
    rank.sync()?;
    Ok(mx)
}

/// Keeps the endpoint for the next task. The last message may still use its memory, and its end
/// takes both ranks.
///
/// # Errors
/// The other rank has ended.
pub fn keep(rank: &mut Rank, number: u64, mx: Mx) -> Result<()> {
    rank.tell(&[0])?;
    while !rank.has_note()? {
        mx.poll()?;
    }
    rank.receive_note()?;
    opened::<Faces>(rank)?.wired = Some((number, mx));
    Ok(())
}

/// Ping-pong of `mx_isend` and `mx_irecv` in frames of MX over Ethernet, one way, with one of the
/// tunings.
pub fn ping_pong(rank: &mut Rank, task: &Task) -> Result<Outcome> {
    let mut mx = open(rank, task.arg)?;
    mx.prepare(task.size);
    let outcome = volley(rank, task, &mut mx, "lost", Mx::send, |mx| mx.recv().map(|()| true))?;
    keep(rank, task.arg, mx)?;
    Ok(outcome)
}

impl Run<'_> {
    /// Messages in frames of MXoE by each tuning: the analogues of Figures 9 to 11.
    pub(super) fn wired_lines(&mut self) -> Result<()> {
        if self.bench.place == Place::Here {
            return Ok(());
        }
        let mut long = [None; TUNINGS.len()];
        for ((name, _), arg) in TUNINGS.into_iter().zip(0..) {
            for size in SIZES.into_iter().filter(|&size| self.wants(size)).collect::<Vec<_>>() {
                self.begin(name);
                let tcp = self.bench.bare(Probe::PingPong(Channel::Tcp));
                let ours = Subject { arg, ..Face::MxWired.into() };
                let got = self.bench.measure(size, &[ours, tcp], |s| s * 1e6)?;
                if size == SIZES[SIZES.len() - 1] {
                    long[arg as usize] = got[0];
                }
                let line = (name, size, "us", Better::Lower);
                self.push(line, [got[0], None, got[1]], ("", "tcp"), Aim::default());
            }
        }
        if let [Some(copied), Some(gathered), Some(overlapped)] = long {
            self.notes.push(format!(
                "gathered against copied, 1 MiB: {:.2} of the time",
                gathered.median / copied.median
            ));
            let gain = (gathered.median / overlapped.median - 1.0) * 100.0;
            let stands = if gain > 10.0 { "stands" } else { "does not stand" };
            self.notes.push(format!(
                "paper 001, Figure 10: overlapped copies raise the rate of long messages by 24 to \
                 32 %; here, with a second core as the engine, by {gain:+.0} %: {stands}"
            ));
        }
        Ok(())
    }
}
