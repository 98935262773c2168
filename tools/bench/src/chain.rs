//! Multicast by the kernels of the members, to compare with multicast by ranks and by agents.

use super::service::{
    await_packet, clock_us, number, packet, receivers_compute, report, stream, Log, Server, PACKET,
    TIMEOUT, WAIT,
};
use super::wire;
use anyhow::{ensure, Context, Result};
use weft::Job;
use weft_kernel::chain::{
    Answers, ChainError, ChainMember, ChainRoot, KernelChains, Place, SipKey,
};
use weft_link::ether::Mac;

/// Number of the group on every interface.
const GROUP: u16 = 7;

enum End<'a> {
    Root(Box<ChainRoot<'a>>),
    Member(ChainMember<'a>),
}

struct Kernels<'a> {
    end: End<'a>,
    place: &'static str,
}

impl Server for Kernels<'_> {
    fn place(&self) -> &'static str {
        self.place
    }

    fn send(&mut self, n: u32) -> Result<()> {
        let End::Root(root) = &mut self.end else { return Ok(()) };
        root.send(&packet(n), TIMEOUT).context("sending down the chain")
    }

    fn look(&mut self, log: &Log) -> Result<()> {
        let End::Member(member) = &mut self.end else { return Ok(()) };
        let mut packet = [0; PACKET];
        while member.receive(&mut packet)?.is_some() {
            log.borrow_mut().push((number(&packet)?, clock_us()));
        }
        Ok(())
    }

    fn wait(&mut self, log: &Log) -> Result<()> {
        let End::Member(member) = &mut self.end else { return Ok(()) };
        let mut packet = [0; PACKET];
        match member.wait(&mut packet, WAIT) {
            Err(ChainError::Nothing(_)) => return Ok(()),
            other => other?,
        };
        log.borrow_mut().push((number(&packet)?, clock_us()));
        self.look(log)
    }

    fn finish(&mut self) -> Result<()> {
        let End::Root(root) = &mut self.end else { return Ok(()) };
        root.flush(TIMEOUT).context("waiting for the chain")
    }
}

/// Measures the figures with the kernels of the members forwarding, and again with the kernel of
/// the root filtering the answers too. Measures nothing where a rank may not attach programs.
pub fn multicast(job: &Job, log: &Log, repeat: u32) -> Result<()> {
    let world = job.world();
    let kind = weft::job::packet_from_env()?.kind;
    let interface = wire::interface()?;
    let chains = KernelChains::serve(&interface, kind);
    let mine = if chains.is_ok() { interface.mac.0.to_vec() } else { Vec::new() };
    if let Err(e) = &chains {
        log::warn!("no multicast by kernels is measured: {}: {e}", interface.name);
    }
    let all = job.block_on(world.allgather(mine))?;
    let macs: Vec<Mac> = all.iter().filter_map(|mac| mac[..].try_into().ok().map(Mac)).collect();
    let Ok(chains) = chains else { return Ok(()) };
    if macs.len() < world.size() {
        return Ok(());
    }
    for (place, answers) in
        [("kernel", Answers::Received), ("kernel, answers too", Answers::Filtered(&chains))]
    {
        let key = job.block_on(world.broadcast(0, SipKey::random().0.to_vec()))?;
        let key = SipKey(key[..].try_into().context("a key of 16 bytes")?);
        let me = world.rank();
        let end = match me {
            0 => {
                let root = ChainRoot::open(&interface, kind, (GROUP, key), &macs[1..], answers)?;
                End::Root(Box::new(root))
            }
            _ => {
                let next = macs.get(me + 1).copied();
                let place = Place { position: me as u16, next, root: macs[0] };
                End::Member(chains.join(GROUP, key, place)?)
            }
        };
        let mut server = Kernels { end, place };
        job.block_on(world.barrier())?;
        receivers_compute(job, log, &mut server, repeat)?;
        stream(job, log, &mut server, repeat)?;
        acknowledged(job, log, &mut server, repeat)?;
        job.block_on(world.barrier())?;
    }
    ensure!(log.borrow().is_empty(), "packets that nobody sent");
    Ok(())
}

/// Measures the time until the kernels of all members have stored a packet and the root knows it,
/// while the members compute.
fn acknowledged(job: &Job, log: &Log, server: &mut Kernels<'_>, repeat: u32) -> Result<()> {
    job.block_on(job.world().barrier())?;
    let mut times = Vec::new();
    for n in 0..repeat {
        match &server.end {
            End::Root(_) => {
                let from = clock_us();
                server.send(n)?;
                server.finish()?;
                times.push(clock_us() - from);
            }
            End::Member(_) => await_packet(job, log, server, n)?,
        }
    }
    log.borrow_mut().clear();
    job.block_on(job.world().barrier())?;
    if job.world().rank() == 0 {
        report("kernels have it", server.place, times)?;
    }
    Ok(())
}
