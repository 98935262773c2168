//! Coherent regions: memory of any size that all ranks read and write under guards.
//!
//! A region is an array of numbers or of other [`Item`]s. The rank that makes it is its *home*; all
//! ranks that know its name map it. An operation reads or writes: several ranks may read, or one
//! writes. Ranks keep their copies until another rank wants to write, so that what is used again is
//! here already. All operations are sequentially consistent: each sees what the one before wrote.
//!
//! The protocol is that of CRL (Johnson, Kaashoek, Wallach: *CRL: high-performance all-software
//! distributed shared memory*, 1995): a directory at the home, which takes copies back before it
//! grants the right to write.
//!
//! ```no_run
//! use weft_models::net::{Blocking, Live, Net};
//! use weft_models::regions::Regions;
//!
//! let job = weft::Job::init()?;
//! let net = Live::new(job.world())?;
//! let regions = Regions::open(&net);
//! // Rank 0 makes a region of 1,000 numbers, and all get its name.
//! let mine = (net.rank() == 0).then(|| regions.create(vec![0u64; 1000])).transpose()?;
//! let name = regions.broadcast_blocking(0, mine.as_ref().map(|region| region.id()))?;
//! let sums = net.block_on(regions.map::<u64>(name))?;
//! sums.write_blocking()?[7] += net.rank() as u64;
//! regions.barrier_blocking()?;
//! println!("rank {} reads {}", net.rank(), sums.read_blocking()?[7]);
//! regions.barrier_blocking()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod entry;
mod error;
mod given_up;
mod home;
mod item;
mod lease;
mod region;
mod runtime;
mod wire;

pub use error::{RegionCause, RegionError};
pub use item::Item;
pub use region::{Operation, ReadGuard, Region, WriteGuard};

use crate::channel::{was_opened, MESSAGE_MAX};
use crate::net::{Blocking, Net, RankFailure};
use crate::together::{may_wait, Function};
use crate::HANDLERS;
use entry::{Local, Typed};
use runtime::Inner;
use std::fmt;
use std::rc::Rc;

/// The handlers of regions: their messages, calls, and operations of all ranks.
const FIRST: u16 = HANDLERS + 18;
/// Most bytes of a region.
pub const SIZE_MAX: usize = MESSAGE_MAX;
/// Most bytes of copies without handles, unless the program says otherwise.
const CACHE: usize = 64 << 20;

/// The way in which an operation uses a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// The operation reads; several ranks may.
    Read,
    /// The operation reads and writes; one rank may.
    Write,
}

/// The name of a region: its home, and the home's number for it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct RegionId {
    home: u32,
    number: u64,
}

impl RegionId {
    /// Returns the name of the region to which a home has given a number.
    pub fn new(home: usize, number: u64) -> RegionId {
        RegionId { home: home as u32, number }
    }

    /// Returns the home's number for the region: 0 for the first that it made.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the rank that has the directory of the region.
    pub fn home(&self) -> usize {
        self.home as usize
    }

    /// Returns the name as bytes, for messages.
    pub fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.home.to_le_bytes());
        bytes[4..].copy_from_slice(&self.number.to_le_bytes());
        bytes
    }

    /// Returns the name of these bytes.
    pub fn from_bytes(bytes: &[u8; 12]) -> RegionId {
        let (home, number) = (bytes.first_chunk(), bytes.last_chunk());
        RegionId {
            home: home.copied().map_or(0, u32::from_le_bytes),
            number: number.copied().map_or(0, u64::from_le_bytes),
        }
    }
}

impl fmt::Display for RegionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.home, self.number)
    }
}

/// The regions of a job, at this rank. Clones are the same. A rank keeps one until all others are
/// done with the regions whose home it is.
#[derive(Clone)]
pub struct Regions<N: Net> {
    inner: Rc<Inner<N>>,
}

impl<N: Net> Regions<N> {
    /// Opens the regions of all ranks of a net, once in a job. Messages that came before have
    /// waited.
    ///
    /// # Panics
    /// This rank has opened its regions before.
    pub fn open(net: &N) -> Regions<N> {
        Regions::with_cache(net, CACHE)
    }

    /// Does what [`open`](Regions::open) does, with the most bytes of copies that stay here without
    /// a handle (usually 64 MiB).
    ///
    /// # Panics
    /// This rank has opened its regions before.
    pub fn with_cache(net: &N, bytes: usize) -> Regions<N> {
        assert!(!was_opened(net, FIRST), "a rank opens its regions once in a job");
        Regions { inner: Inner::open(net, FIRST, bytes) }
    }

    /// Returns the packet interface below.
    pub fn net(&self) -> &N {
        &self.inner.net
    }

    /// Makes a region of these items, whose home is this rank. Its length stays.
    ///
    /// # Errors
    /// The region is larger than 256 MiB.
    pub fn create<T: Item>(&self, items: Vec<T>) -> Result<Region<N, T>, RegionError> {
        if items.len().saturating_mul(T::SIZE) > SIZE_MAX {
            let region = RegionId { home: self.inner.net.rank() as u32, number: u64::MAX };
            return Err(RegionError { region, cause: RegionCause::TooLarge { most: SIZE_MAX } });
        }
        let typed = Typed::new(items);
        let entry = self.inner.create(Rc::clone(&typed) as Rc<dyn entry::Store>);
        Ok(Region::new(&self.inner, &entry, &typed))
    }

    /// Maps a region that some rank has made. Its copy comes with the first operation.
    ///
    /// # Errors
    /// There is no such region, it has items of another type, or it is lost with a rank.
    pub async fn map<T: Item>(&self, id: RegionId) -> Result<Region<N, T>, RegionError> {
        let error = |cause| RegionError { region: id, cause };
        let items = |name: String| format!("items of type {name}");
        let other =
            |found| error(RegionCause::Type { wanted: items(T::name()), found: items(found) });
        let inner = &self.inner;
        if inner.find(id).is_none() && id.home() != inner.net.rank() {
            let (count, name) = inner.shape(id).await.map_err(error)?;
            if name != T::name() {
                return Err(other(name));
            }
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            if count.saturating_mul(T::SIZE) > SIZE_MAX || T::SIZE == 0 && count > SIZE_MAX {
                return Err(error(RegionCause::TooLarge { most: SIZE_MAX }));
            }
            // Another task may have mapped it meanwhile.
            if inner.find(id).is_none() {
                inner.add(id, Typed::new(vec![T::default(); count]), Local::default(), None);
            }
        }
        let entry = inner.find(id).ok_or_else(|| error(RegionCause::NoRegion))?;
        entry.check()?;
        match Rc::clone(&entry.store).as_any().downcast::<Typed<T>>() {
            Ok(typed) => Ok(Region::new(inner, &entry, &typed)),
            Err(_) => Err(other(entry.store.shape().1)),
        }
    }

    /// Maps a region of which this rank knows the number of items, without a message. If it has
    /// another number or is of another type, its operations fail, or bytes are taken for items.
    ///
    /// # Errors
    /// The region is mapped here with another type or number of items, or would be too large. It is
    /// known here that it is deleted or lost.
    pub fn map_known<T: Item>(
        &self,
        id: RegionId,
        count: usize,
    ) -> Result<Region<N, T>, RegionError> {
        let error = |cause| RegionError { region: id, cause };
        if count.saturating_mul(T::SIZE.max(1)) > SIZE_MAX {
            return Err(error(RegionCause::TooLarge { most: SIZE_MAX }));
        }
        let inner = &self.inner;
        if id.home() == inner.net.rank() && inner.find(id).is_none() {
            return Err(error(RegionCause::NoRegion));
        }
        let entry = inner.find(id).unwrap_or_else(|| {
            inner.add(id, Typed::new(vec![T::default(); count]), Local::default(), None)
        });
        entry.check()?;
        match Rc::clone(&entry.store).as_any().downcast::<Typed<T>>() {
            Ok(typed) if typed.count == count => Ok(Region::new(inner, &entry, &typed)),
            _ => {
                let (items, name) = entry.store.shape();
                let wanted = format!("{count} items of type {}", T::name());
                let found = format!("{items} items of type {name}");
                Err(error(RegionCause::Type { wanted, found }))
            }
        }
    }

    /// Waits until all ranks have called this as often.
    ///
    /// # Errors
    /// A rank has failed.
    pub async fn barrier(&self) -> Result<(), RankFailure> {
        self.inner.together.barrier().await
    }

    /// Combines the numbers of all ranks in an order that does not depend on time: all ranks get
    /// the same bits. All call this with the same function.
    ///
    /// # Errors
    /// A rank has failed.
    pub async fn reduce(
        &self,
        mine: f64,
        combine: impl Fn(f64, f64) -> f64,
    ) -> Result<f64, RankFailure> {
        let number = |bytes: &[u8]| f64::get(bytes);
        let both = |all: Vec<u8>, other: &[u8]| {
            combine(number(&all), number(other)).to_le_bytes().to_vec()
        };
        let all = self.inner.together.reduce(mine.to_le_bytes().to_vec(), both).await?;
        Ok(number(&all))
    }

    /// Gives all ranks the name that rank `root` has. All call this, the others with anything.
    ///
    /// # Errors
    /// A rank has failed.
    pub async fn broadcast(
        &self,
        root: usize,
        id: Option<RegionId>,
    ) -> Result<RegionId, RankFailure> {
        let bytes = id.map(|id| id.to_bytes().to_vec()).unwrap_or_default();
        let all = self.inner.together.broadcast(root, bytes).await?;
        let why = format!("rank {root} gave no name of a region");
        let bytes = all.first_chunk().ok_or(RankFailure { rank: root, certain: false, why })?;
        Ok(RegionId::from_bytes(bytes))
    }

    /// Gives all ranks the names that each has: those of rank 0 first.
    ///
    /// # Errors
    /// A rank has failed.
    pub async fn gather(&self, mine: &[RegionId]) -> Result<Vec<RegionId>, RankFailure> {
        let bytes = mine.iter().flat_map(|id| id.to_bytes()).collect();
        let join = |all: Vec<u8>, other: &[u8]| [&all, other].concat();
        let all = self.inner.together.combine(Function::Gather, bytes, join).await?;
        let mut names: Vec<RegionId> =
            all.as_chunks::<12>().0.iter().map(RegionId::from_bytes).collect();
        names.sort_by_key(|id| id.home);
        Ok(names)
    }

    /// Returns the names of the regions that operations of this rank use now.
    pub fn held(&self) -> Vec<RegionId> {
        self.inner.held()
    }

    /// Returns what has been said about the first 64 long waits: the region, the ranks that hold it
    /// up, and the regions that this rank held meanwhile.
    pub fn complaints(&self) -> Vec<String> {
        self.inner.complaints.borrow().clone()
    }
}

impl<N: Blocking> Regions<N> {
    /// Waits until all ranks have called this as often, with progress meanwhile.
    ///
    /// # Errors
    /// A rank has failed.
    pub fn barrier_blocking(&self) -> Result<(), RankFailure> {
        may_wait(&self.inner.net)?;
        self.inner.net.block_on(self.barrier())
    }

    /// Gives all ranks the name that rank `root` has, with progress meanwhile.
    ///
    /// # Errors
    /// A rank has failed.
    pub fn broadcast_blocking(
        &self,
        root: usize,
        id: Option<RegionId>,
    ) -> Result<RegionId, RankFailure> {
        may_wait(&self.inner.net)?;
        self.inner.net.block_on(self.broadcast(root, id))
    }
}
