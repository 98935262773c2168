//! Checkpoints: all objects in one file, which any number of ranks reads again.
//!
//! The file has a head, the number of bytes of all that follows, the arrays, the objects in order,
//! and a hash of the bytes before it. It does not depend on the number of ranks.

use super::runtime::{Actors, Inner};
use super::wire::{Note, Packed};
use super::{ActorCause, ActorError, Shape};
use crate::net::Net;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

/// Version of the file.
pub const CHECKPOINT_VERSION: u8 = 1;

const MAGIC: &[u8; 8] = b"weftobj\n";
/// Bytes of objects in a message.
const PER_MESSAGE: usize = 1 << 20;

/// An array in a checkpoint: its number, type, version, shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    number: u16,
    name: String,
    version: u32,
    shape: Shape,
}

/// All objects of a checkpoint: array, object, state.
type Objects = Vec<(u16, u32, Vec<u8>)>;

impl<N: Net> Actors<N> {
    /// Writes all objects to a file at rank 0, which replaces an older one when it is whole. All
    /// ranks call this, between runs.
    ///
    /// # Errors
    /// The file cannot be written, or a reduction is under way: all ranks get the error, and runs
    /// go on. Or the errors of a run.
    pub async fn checkpoint(&self, path: &Path) -> Result<(), ActorError> {
        let inner = &self.inner;
        inner.collected.checkpoint.take();
        inner.collected.saved.borrow_mut().clear();
        let (mine, is_done) = inner.all_states();
        match is_done {
            true => inner.collect(mine).await,
            false => inner.refuse(),
        }
        inner.to_the_end().await?;
        if inner.net.rank() == 0 {
            let refused = inner.collected.checkpoint.take().flatten();
            let end = refused.or_else(|| inner.write(path).err());
            inner.announce(end);
        }
        inner.to_the_end().await?;
        inner.announced()
    }

    /// Replaces all objects by those of a file at rank 0. All ranks have made the same arrays, with
    /// objects that go, and call this between runs; there may be more ranks than those that wrote
    /// the file, or fewer.
    ///
    /// # Errors
    /// The file is no whole checkpoint, or one of another version or of other arrays: all ranks get
    /// the error, and the objects stay. Or the errors of a run.
    pub async fn restore(&self, path: &Path) -> Result<(), ActorError> {
        let inner = &self.inner;
        inner.collected.checkpoint.take();
        let mut objects = Objects::new();
        if inner.net.rank() == 0 {
            let read = std::fs::read(path).map_err(|why| format!("{}: {why}", path.display()));
            let all = read.and_then(|bytes| inner.parse(&bytes));
            let all = all.map_err(|why| why.to_string());
            inner.announce(all.as_ref().err().cloned());
            objects = all.unwrap_or_default();
        }
        inner.to_the_end().await?;
        inner.announced()?;
        inner.forget();
        inner.distribute(objects).await;
        inner.to_the_end().await
    }
}

impl<N: Net> Inner<N> {
    /// Returns the states of all objects here. False if a reduction is under way.
    fn all_states(&self) -> (Objects, bool) {
        let mut all = Objects::new();
        let mut is_done = true;
        for (&array, entry) in self.arrays.borrow().iter() {
            is_done &= entry.rounds.borrow().are_done();
            for element in entry.store.elements() {
                match entry.store.state(element) {
                    Some(Ok(state)) => all.push((array, element, state)),
                    Some(Err(text)) => self.fault(Some((array, element)), text),
                    None => {}
                }
            }
        }
        (all, is_done)
    }

    /// Sends objects to rank 0.
    async fn collect(&self, objects: Objects) {
        if self.net.rank() == 0 {
            return self.take_saved(0, objects);
        }
        for part in parts(objects) {
            self.channel.room(0).await;
            self.note(0, &Note::Saved(part));
        }
    }

    fn refuse(&self) {
        let rank = self.net.rank();
        let text =
            format!("rank {rank} has objects that have contributed to an unfinished reduction");
        match rank {
            0 => drop(self.collected.checkpoint.replace(Some(Some(text)))),
            _ => self.note(0, &Note::Checkpoint(Some(text))),
        }
    }

    /// Tells all ranks of the end of a checkpoint.
    fn announce(&self, end: Option<String>) {
        let note = Note::Checkpoint(end.clone());
        (1..self.net.size()).for_each(|rank| self.note(rank, &note));
        self.collected.checkpoint.replace(Some(end));
    }

    fn announced(&self) -> Result<(), ActorError> {
        match self.collected.checkpoint.take().flatten() {
            None => Ok(()),
            Some(text) => {
                let cause = ActorCause::Checkpoint(text);
                Err(ActorError { rank: 0, object: None, cause })
            }
        }
    }

    /// Takes objects: at rank 0 for a file, at other ranks from one.
    pub fn take_saved(&self, from: usize, objects: Objects) {
        if self.net.rank() == 0 {
            let all = objects.into_iter().map(|(array, element, state)| ((array, element), state));
            return self.collected.saved.borrow_mut().extend(all);
        }
        self.place(from, objects);
    }

    fn place(&self, from: usize, objects: Objects) {
        for (array, element, state) in objects {
            let packed = Packed { array, element, state, ..Packed::default() };
            let placed = match self.entry(array) {
                Some(entry) => entry.store.unpack(&packed),
                None => Err(format!("rank {from} restores array {array}, which is not made here")),
            };
            if let Err(text) = placed {
                return self.fault(Some((array, element)), text);
            }
        }
    }

    fn arrays_here(&self) -> Vec<Saved> {
        let arrays = self.arrays.borrow();
        let saved = arrays.iter().map(|(&number, entry)| Saved {
            number,
            name: entry.store.name().to_string(),
            version: entry.store.version(),
            shape: entry.shape,
        });
        saved.collect()
    }

    /// Writes what rank 0 has collected.
    fn write(&self, path: &Path) -> Result<(), String> {
        let objects = self.collected.saved.take();
        let objects: Objects =
            objects.into_iter().map(|((array, element), state)| (array, element, state)).collect();
        let body = postcard::to_allocvec(&(self.arrays_here(), objects));
        let body = body.map_err(|why| why.to_string())?;
        let head = [&MAGIC[..], &[CHECKPOINT_VERSION], &(body.len() as u64).to_le_bytes()].concat();
        let hash = hash(&[&head, &body]).to_le_bytes();
        let beside = path.with_extension("part");
        let written = (|| {
            let mut file = std::fs::File::create(&beside)?;
            [&head[..], &body, &hash].iter().try_for_each(|part| file.write_all(part))?;
            file.sync_all()?;
            std::fs::rename(&beside, path)
        })();
        written.map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Reads a file for the arrays of this program.
    fn parse(&self, bytes: &[u8]) -> Result<Objects, String> {
        let (saved, objects) = unpack(bytes)?;
        let here = self.arrays_here();
        for array in &saved {
            match here.iter().find(|other| other.number == array.number) {
                Some(other) if other == array => {}
                Some(other) => {
                    return Err(format!(
                        "it is of another program: array {} is {} of version {} and shape {} \
                         there, and {} of version {} and shape {} here",
                        array.number,
                        array.name,
                        array.version,
                        array.shape,
                        other.name,
                        other.version,
                        other.shape
                    ));
                }
                None => {
                    return Err(format!(
                        "it is of another program: it has array {} of {}, which is not made here",
                        array.number, array.name
                    ));
                }
            }
        }
        let all: u64 = here.iter().map(|array| array.shape.len()).sum();
        match objects.len() as u64 == all && here.len() == saved.len() {
            true => Ok(objects),
            false => Err(format!("it has {} objects, and the arrays here {all}", objects.len())),
        }
    }

    /// Forgets all objects, and where they are.
    fn forget(&self) {
        for entry in self.arrays.borrow().values() {
            entry.store.clear();
            entry.places.borrow_mut().clear();
            entry.results.borrow_mut().clear();
            entry.rounds.take();
        }
    }

    /// Sends objects from rank 0 to their homes.
    async fn distribute(&self, objects: Objects) {
        let ranks = self.net.size();
        let mut of = vec![Objects::new(); ranks];
        for object in objects {
            let Some(entry) = self.entry(object.0) else { continue };
            of[entry.shape.home(object.1, ranks)].push(object);
        }
        for (rank, objects) in of.into_iter().enumerate() {
            if rank == self.net.rank() {
                self.place(rank, objects);
                continue;
            }
            for part in parts(objects) {
                self.channel.room(rank).await;
                self.note(rank, &Note::Saved(part));
            }
        }
    }
}

/// Divides objects into messages.
fn parts(objects: Objects) -> Vec<Objects> {
    let (mut all, mut part, mut bytes) = (Vec::new(), Objects::new(), 0);
    for object in objects {
        bytes += object.2.len() + 16;
        part.push(object);
        if bytes >= PER_MESSAGE {
            all.push(std::mem::take(&mut part));
            bytes = 0;
        }
    }
    all.extend(Some(part).filter(|part| !part.is_empty()));
    all
}

/// Returns the hash FNV-1a of bytes.
fn hash(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn unpack(bytes: &[u8]) -> Result<(Vec<Saved>, Objects), String> {
    let rest = bytes.strip_prefix(&MAGIC[..]).ok_or("the file is no checkpoint of objects")?;
    let (&version, rest) = rest.split_first().ok_or("it is truncated in its head")?;
    if version != CHECKPOINT_VERSION {
        return Err(format!("it has version {version}, and {CHECKPOINT_VERSION} is read here"));
    }
    let (len, rest) = rest.split_first_chunk().ok_or("it is truncated in its head")?;
    let len = u64::from_le_bytes(*len);
    if rest.len() as u64 != len.saturating_add(8) {
        let has = rest.len();
        return Err(format!(
            "it is truncated, or longer: {has} bytes after its head, not {len} and 8"
        ));
    }
    let (body, end) = rest.split_at(rest.len() - 8);
    let head = &bytes[..bytes.len() - rest.len()];
    if hash(&[head, body]).to_le_bytes() != end {
        return Err("its bytes are damaged: the hash differs".to_string());
    }
    postcard::from_bytes(body).map_err(|why| format!("its objects cannot be read: {why}"))
}
