//! The regions of a process for `crl.h`: by the addresses of their copies.

use super::calls::{self, Function};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use weft::Job;
use weft_link::copied::Origin;
use weft_models::net::{Blocking, Live, Net};
use weft_models::regions::{Operation, Region, RegionError, RegionId, Regions, SIZE_MAX};
use weft_models::together::Together;
use weft_models::MESSAGE_MAX;

/// Alignment of a copy.
const ALIGNED: usize = 16;
/// Most bytes of a message of one node to all.
const BROADCAST_MAX: usize = MESSAGE_MAX - 64;
/// Bits of a region's name that are its home's number for it.
const NUMBER_BITS: u32 = 40;

pub use weft_models::regions::Access;

/// A region that the program has mapped.
struct Mapped {
    region: Region<Live, u8>,
    /// Maps that have not ended.
    maps: usize,
    /// Reads that nest are one operation: a new one would wait for a writer, which waits for this.
    operations: Vec<Rc<Operation<Live, u8>>>,
}

impl Mapped {
    /// True if an operation that writes is under way.
    fn writes(&self) -> bool {
        self.operations.iter().any(|operation| operation.is_write())
    }
}

/// A process as a node of CRL.
pub struct Node {
    // Dropped in this order: the job last.
    mapped: RefCell<BTreeMap<usize, Mapped>>,
    /// The addresses of mapped regions.
    addresses: RefCell<BTreeMap<RegionId, usize>>,
    /// The regions whose home is here: until they are deleted.
    made: RefCell<BTreeMap<RegionId, Region<Live, u8>>>,
    regions: Regions<Live>,
    together: Together<Live>,
    net: Live,
    origin: Origin,
    _job: Job,
}

/// Returns the name of a region in C.
fn to_name(id: RegionId) -> Result<u64, String> {
    let home = (id.home() as u64 + 1).checked_shl(NUMBER_BITS);
    match home {
        Some(home) if id.number() >> NUMBER_BITS == 0 => Ok(home | id.number()),
        _ => Err("too many regions".into()),
    }
}

/// Returns a region as errors name it: as logs do, and by its name in C.
fn shown(id: RegionId) -> String {
    match to_name(id) {
        Ok(name) => format!("region {id} (rid_t {name:#x})"),
        Err(_) => format!("region {id}"),
    }
}

/// Returns the text of an error.
fn text_of(error: RegionError) -> String {
    format!("{}: {}", shown(error.region), error.cause)
}

/// Runs a future to its end; its error as text.
fn wait<T, E: ToString>(
    net: &Live,
    work: impl std::future::Future<Output = Result<T, E>>,
) -> Result<T, String> {
    net.block_on(work).map_err(|error| error.to_string())
}

impl Node {
    /// Joins the job of this process.
    ///
    /// # Errors
    /// The job cannot be joined.
    pub fn join() -> Result<Node, String> {
        weft_link::telling::log_to_standard_error();
        let job = Job::init().map_err(|error| error.to_string())?;
        let net = Live::new(job.world()).map_err(|error| error.to_string())?;
        Ok(Node {
            mapped: RefCell::default(),
            addresses: RefCell::default(),
            made: RefCell::default(),
            regions: Regions::open(&net),
            together: Together::open(&net, 0),
            net,
            origin: Origin::here(),
            _job: job,
        })
    }

    /// True in the process that joined, and not in a copy made by fork.
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    pub fn rank(&self) -> usize {
        self.net.rank()
    }

    pub fn size(&self) -> usize {
        self.net.size()
    }

    /// Returns the region of a name in C.
    fn id(&self, name: u64) -> Result<RegionId, String> {
        let home = (name >> NUMBER_BITS).checked_sub(1).and_then(|home| usize::try_from(home).ok());
        match home.filter(|&home| home < self.size()) {
            Some(home) => Ok(RegionId::new(home, name & ((1 << NUMBER_BITS) - 1))),
            None => Err(format!("{name:#x} is no region: a rid_t comes from rgn_create")),
        }
    }

    /// Makes a region.
    ///
    /// # Errors
    /// The region is empty or too large.
    pub fn create(&self, size: usize) -> Result<u64, String> {
        if size == 0 {
            return Err("a region has at least one byte".into());
        }
        if size > SIZE_MAX {
            return Err(format!("a region of {size} bytes: regions have at most {SIZE_MAX} bytes"));
        }
        let bytes = weft::memory::zeroed(size);
        let bytes = bytes.ok_or_else(|| format!("no memory of {size} bytes is left here"))?;
        let region = self.regions.create(bytes).map_err(text_of)?;
        let id = region.id();
        self.made.borrow_mut().insert(id, region);
        to_name(id)
    }

    /// Deletes a region.
    ///
    /// # Errors
    /// There is none, it is mapped here, or its home has failed.
    pub fn delete(&self, name: u64) -> Result<(), String> {
        let id = self.id(name)?;
        if self.addresses.borrow().contains_key(&id) {
            return Err(format!("{} is mapped: unmap it first", shown(id)));
        }
        wait(&self.net, async {
            let made = self.made.borrow_mut().remove(&id);
            let region = match made {
                Some(region) => region,
                None => self.regions.map::<u8>(id).await.map_err(text_of)?,
            };
            region.delete().await.map_err(text_of)
        })
    }

    /// Maps a region, and returns the address of its copy.
    ///
    /// # Errors
    /// There is none, or its home has failed.
    pub fn map(&self, name: u64) -> Result<*mut u8, String> {
        let id = self.id(name)?;
        let known = self.addresses.borrow().get(&id).copied();
        if let Some(address) = known {
            return self.at(address, |mapped| {
                mapped.region.check().map_err(text_of)?;
                mapped.maps += 1;
                mapped.region.address().ok_or_else(|| "a guard uses the region".into())
            });
        }
        let region = self.net.block_on(self.regions.map::<u8>(id)).map_err(text_of)?;
        let copy = region.address().filter(|copy| copy.addr() % ALIGNED == 0);
        let copy = copy.ok_or("memory that is not aligned")?;
        self.addresses.borrow_mut().insert(id, copy.addr());
        let mapped = Mapped { region, maps: 1, operations: Vec::new() };
        self.mapped.borrow_mut().insert(copy.addr(), mapped);
        Ok(copy)
    }

    /// Uses a mapped region.
    fn at<T>(
        &self,
        address: usize,
        f: impl FnOnce(&mut Mapped) -> Result<T, String>,
    ) -> Result<T, String> {
        match self.mapped.borrow_mut().get_mut(&address) {
            Some(mapped) => f(mapped),
            None => Err(format!(
                "{address:#x} is not the address of a mapped region: it was not mapped, or is \
                 unmapped already"
            )),
        }
    }

    /// Ends one map.
    ///
    /// # Errors
    /// The region is not mapped, or an operation on it has not ended.
    pub fn unmap(&self, address: usize) -> Result<(), String> {
        let ended = self.at(address, |mapped| {
            if mapped.maps == 1 && !mapped.operations.is_empty() {
                return Err("an operation on the region has not ended".to_owned());
            }
            mapped.maps -= 1;
            Ok((mapped.maps == 0).then(|| mapped.region.id()))
        })?;
        if let Some(id) = ended {
            self.addresses.borrow_mut().remove(&id);
            self.mapped.borrow_mut().remove(&address);
        }
        Ok(())
    }

    /// Returns the name of a mapped region.
    ///
    /// # Errors
    /// The region is not mapped.
    pub fn name(&self, address: usize) -> Result<u64, String> {
        self.at(address, |mapped| to_name(mapped.region.id()))
    }

    /// Returns the size of a mapped region in bytes.
    ///
    /// # Errors
    /// The region is not mapped.
    pub fn size_of(&self, address: usize) -> Result<usize, String> {
        self.at(address, |mapped| Ok(mapped.region.len()))
    }

    /// Begins an operation.
    ///
    /// # Errors
    /// The region is not mapped or is lost, or an operation of this node would wait for itself.
    pub fn start(&self, address: usize, access: Access) -> Result<(), String> {
        let region = self.at(address, |mapped| match (access, mapped.operations.is_empty()) {
            (Access::Write, false) => {
                Err("this node is in an operation on the region: end that one first".to_owned())
            }
            (Access::Read, false) if mapped.writes() => {
                Err("this node is writing the region: end that operation first".to_owned())
            }
            (Access::Read, false) => {
                mapped.operations.extend_from_within(..1);
                Ok(None)
            }
            _ => Ok(Some(mapped.region.clone())),
        })?;
        let Some(region) = region else { return Ok(()) };
        let operation = region.begin_to_blocking(access).map_err(text_of)?;
        self.at(address, |mapped| {
            mapped.operations.push(Rc::new(operation));
            Ok(())
        })
    }

    /// Ends an operation, and answers requests of other nodes.
    ///
    /// # Errors
    /// There is none of the kind on the region.
    pub fn end(&self, address: usize, access: Access) -> Result<(), String> {
        let write = access == Access::Write;
        let operation = self.at(address, |mapped| {
            let last = mapped.operations.pop_if(|last| last.is_write() == write);
            let kind = if write { "writes" } else { "reads" };
            last.ok_or_else(|| format!("this node is in no operation that {kind} the region"))
        })?;
        drop(operation);
        self.net.poll();
        Ok(())
    }

    /// Gives a copy back.
    ///
    /// # Errors
    /// The region is not mapped, or in use.
    pub fn flush(&self, address: usize) -> Result<(), String> {
        let region = self.at(address, |mapped| match mapped.operations.is_empty() {
            true => Ok(mapped.region.clone()),
            false => Err("an operation on the region has not ended".to_owned()),
        })?;
        region.flush();
        Ok(())
    }

    /// Waits for all nodes.
    ///
    /// # Errors
    /// A node has failed, or calls another function.
    pub fn barrier(&self) -> Result<(), String> {
        self.together(Function::Barrier, &[], |_, _| Vec::new()).map(drop)
    }

    /// Combines the bytes of all nodes, which call the same function.
    fn together(
        &self,
        function: Function,
        bytes: &[u8],
        both: impl Fn(&[u8], &[u8]) -> Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        let mine = calls::message(function, self.rank(), bytes);
        let join = |all: Vec<u8>, other: &[u8]| calls::join(&all, other, &both);
        let all = wait(&self.net, self.together.reduce(mine, join))?;
        calls::result(&all).map(<[u8]>::to_vec)
    }

    /// Gives all nodes the bytes of the one that has some.
    ///
    /// # Errors
    /// A node has failed, none or several send, the lengths differ, or there are too many bytes.
    pub fn broadcast(&self, mine: Option<&[u8]>, length: usize) -> Result<Vec<u8>, String> {
        if length > BROADCAST_MAX {
            return Err(format!("{length} bytes for all nodes: {BROADCAST_MAX} are the most"));
        }
        // The number of nodes that send, and their bytes.
        let number = u32::from(mine.is_some()).to_le_bytes();
        let bytes = [&number[..], mine.unwrap_or_default()].concat();
        let senders = |bytes: &[u8]| bytes.first_chunk().map_or(0, |n| u32::from_le_bytes(*n));
        let join = |all: &[u8], other: &[u8]| {
            let number = senders(all) + senders(other);
            let bytes = if all.len() > size_of::<u32>() { all } else { other };
            let bytes = bytes.get(size_of::<u32>()..).unwrap_or_default();
            [&number.to_le_bytes()[..], bytes].concat()
        };
        let function = if mine.is_some() { Function::Send } else { Function::Receive };
        let all = self.together(function, &bytes, join)?;
        let bytes = all.get(size_of::<u32>()..).unwrap_or_default();
        match senders(&all) {
            1 if bytes.len() == length => Ok(bytes.to_vec()),
            1 => Err(format!("{} bytes are sent, and this node has {length}", bytes.len())),
            0 => Err("no node sends (rgn_bcast_send)".into()),
            many => Err(format!("{many} nodes send (rgn_bcast_send), and one should")),
        }
    }

    /// Combines the numbers of all nodes.
    ///
    /// # Errors
    /// A node has failed, or calls another function.
    pub fn reduce(
        &self,
        function: Function,
        mine: f64,
        f: impl Fn(f64, f64) -> f64,
    ) -> Result<f64, String> {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0.0, |n| f64::from_le_bytes(*n));
        let both = |all: &[u8], other: &[u8]| f(number(all), number(other)).to_le_bytes().to_vec();
        let all = self.together(function, &mine.to_le_bytes(), both)?;
        Ok(number(&all))
    }
}
