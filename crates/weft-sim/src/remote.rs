//! Remote memory in a plan: operations of hosts on each other's regions, and their checks.
//!
//! A region begins with words for atomic operations, which all hosts use. After them each host has
//! an area of its own, which no other host writes: a get must return the bytes of the last put.

use crate::checker::Word;
use crate::plan::{Act, Remote};
use crate::shared::{me, peer, Shared};
use crate::sim::Env;
use std::collections::BTreeSet;
use std::rc::Rc;
use weft::{AtomicCode, OpError, PeerId, Rights};

/// Words at the beginning of a region: half for additions, half for exchanges.
pub const WORDS: u32 = 4;

/// Number of times an exchange tries again with the value it found.
const TRIES: u32 = 4;

/// Returns the length of the area of `src` at `dst`.
fn area_len(remotes: &[Remote], src: u32, dst: u32) -> usize {
    let mine = remotes.iter().filter(|r| (r.src, r.dst) == (src, dst));
    mine.map(|r| r.act.end()).max().unwrap_or(0)
}

/// Returns the offset of the area of `src` at `dst`.
fn area(remotes: &[Remote], src: u32, dst: u32) -> usize {
    let before: BTreeSet<u32> = remotes.iter().map(|r| r.src).filter(|&s| s < src).collect();
    8 * WORDS as usize + before.into_iter().map(|s| area_len(remotes, s, dst)).sum::<usize>()
}

/// Pauses are shorter than this.
const STARTED_MS: u32 = 1000;

/// Registers this host's region, and publishes its key.
pub(crate) fn register(env: &Env, shared: &Shared) {
    let len = area(&shared.plan.remotes, u32::MAX, me(env));
    match env.endpoint.regions().register(len, Rights::ALL) {
        Some(key) => drop(shared.keys.borrow_mut().insert(me(env), (key, len))),
        None => shared.checker.borrow_mut().violation(|| "no room for a region".into()),
    }
}

/// Executes this host's operations, those on one target one after the other.
pub(crate) async fn act_all(env: Env, shared: Rc<Shared>) {
    let mine = || shared.plan.remotes.iter().filter(|r| r.src == me(&env));
    let targets: BTreeSet<u32> = mine().map(|r| r.dst).collect();
    let lanes = targets
        .into_iter()
        .map(|dst| act_on(&env, &shared, dst, mine().filter(|r| r.dst == dst).copied().collect()));
    crate::tasks::join_all(lanes).await;
}

/// The state of one target at this host.
struct Target<'a> {
    env: &'a Env,
    shared: &'a Shared,
    dst: u32,
    peer: PeerId,
    key: u64,
    /// Length of the whole region.
    len: usize,
    /// Offset of this host's area.
    base: usize,
    /// The expected contents of this host's area.
    area: Vec<u8>,
}

async fn act_on(env: &Env, shared: &Shared, dst: u32, mine: Vec<Remote>) {
    if mine.is_empty() {
        return;
    }
    // Hosts start at the same time, except one that pauses; one that dies may never start.
    let known = || shared.keys.borrow().get(&dst).copied();
    env.sleep(1).await;
    for _ in 0..STARTED_MS {
        if known().is_some() || shared.mortal(dst) {
            break;
        }
        env.sleep(1_000_000).await;
    }
    let Some((key, len)) = known() else {
        if !shared.mortal(dst) {
            shared.checker.borrow_mut().violation(|| format!("host {dst} has no region"));
        }
        return;
    };
    let area = vec![0; area_len(&shared.plan.remotes, me(env), dst)];
    let base = self::area(&shared.plan.remotes, me(env), dst);
    let peer = peer(env, dst);
    let mut target = Target { env, shared, dst, peer, key, len, base, area };
    for (index, remote) in mine.iter().enumerate() {
        let what = format!("{:?} at host {dst}", remote.act);
        let ticket = shared.checker.borrow_mut().posted(me(env), what.as_str());
        let result = target.act(index as u64, remote.act).await;
        let mut checker = shared.checker.borrow_mut();
        checker.ended(ticket);
        match result {
            Ok(None) => checker.remote_done(),
            Ok(Some(wrong)) => checker.violation(|| format!("host {}: {what}: {wrong}", me(env))),
            Err(e) if shared.accepts(env, &e, dst, peer) => return checker.remote_failed(),
            Err(e) => return checker.violation(|| format!("host {}: {what}: {e}", me(env))),
        }
    }
}

type Verdict = Result<Option<String>, OpError>;

impl Target<'_> {
    /// Executes an operation; returns the fault found, if any, or the error it failed with.
    async fn act(&mut self, index: u64, act: Act) -> Verdict {
        match act {
            Act::Put { at, len } => self.put(index, at, len).await,
            Act::Get { at, len } => self.get(at, len).await,
            Act::Beyond { by } => self.beyond(by).await,
            Act::Add { word } => self.add(word).await,
            Act::Exchange { word, compare } => self.exchange(index, word, compare).await,
        }
    }

    async fn put(&mut self, index: u64, at: usize, len: usize) -> Verdict {
        let seed = self.shared.plan.config.seed;
        let lane = crate::checker::Lane { src: me(self.env), dst: self.dst, tag: u64::MAX - 1 };
        let data = crate::checker::content(seed, lane, index, len);
        self.area[at..at + len].copy_from_slice(&data);
        let offset = (self.base + at) as u64;
        self.env.endpoint.put(self.peer, self.key, offset, data).await.0?;
        Ok(None)
    }

    async fn get(&mut self, at: usize, len: usize) -> Verdict {
        let offset = (self.base + at) as u64;
        let (result, data) =
            self.env.endpoint.get(self.peer, self.key, offset, vec![0xee; len]).await;
        let status = result?;
        let right = status.len == len && data == self.area[at..at + len];
        Ok((!right).then(|| {
            let first = data.iter().zip(&self.area[at..]).position(|(a, b)| a != b);
            format!("{} bytes came, the first wrong one is {first:?}", status.len)
        }))
    }

    /// Checks that a put and a get beyond the end of the region are refused and change nothing.
    async fn beyond(&mut self, by: usize) -> Verdict {
        let offset = (self.len - by.min(self.len)) as u64;
        let data = vec![0xbb; by + 1];
        let put = self.env.endpoint.put(self.peer, self.key, offset + 1, data.clone()).await.0;
        let get = self.env.endpoint.get(self.peer, self.key, offset + 1, data).await.0;
        for result in [put, get] {
            match result {
                Err(OpError::Refused) => {}
                Err(other) => return Err(other),
                Ok(_) => return Ok(Some("was not refused".into())),
            }
        }
        Ok(None)
    }

    async fn atomic(
        &self,
        word: u32,
        code: AtomicCode,
        operand: u64,
        compare: u64,
    ) -> Result<u64, OpError> {
        let offset = u64::from(word) * 8;
        let op = self.env.endpoint.atomic(self.peer, self.key, offset, code, operand, compare);
        op.await.0.map(|status| status.value)
    }

    fn word(&self, number: u32) -> Word {
        Word { host: self.dst, number }
    }

    async fn add(&mut self, number: u32) -> Verdict {
        let word = self.word(number);
        self.shared.checker.borrow_mut().add_posted(word);
        let old = self.atomic(number, AtomicCode::FetchAdd, 1, 0).await?;
        self.shared.checker.borrow_mut().added(word, old);
        Ok(None)
    }

    /// Stores a value that no other host has into the word: by a swap, or by compare-and-swap with
    /// the value found last.
    async fn exchange(&mut self, index: u64, number: u32, compare: bool) -> Verdict {
        let word = self.word(number);
        let mine = u64::from(me(self.env) + 1) << 32 | (index + 1);
        self.shared.checker.borrow_mut().exchange_posted(word, mine);
        let (mut expected, mut tries) = (0, 0);
        loop {
            let old = match compare {
                true => self.atomic(number, AtomicCode::CompareSwap, mine, expected).await?,
                false => self.atomic(number, AtomicCode::Swap, mine, 0).await?,
            };
            let replaced = !compare || old == expected;
            let mut checker = self.shared.checker.borrow_mut();
            checker.exchanged(word, old, replaced.then_some(mine));
            if replaced {
                return Ok(None);
            }
            tries += 1;
            if tries == TRIES {
                checker.exchange_given_up(word);
                return Ok(None);
            }
            expected = old;
        }
    }
}
