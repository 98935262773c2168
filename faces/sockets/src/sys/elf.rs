//! Objects in the memory of this process, as the loader or the kernel has mapped them.

use libc::{c_int, c_void, dl_phdr_info, size_t};
use std::ffi::CStr;

/// Tags of a dynamic section.
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_PLTRELSZ: u64 = 2;
const DT_JMPREL: u64 = 23;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// An object.
#[derive(Debug)]
pub struct Image {
    /// The number that is added to the addresses in the object.
    bias: usize,
    symbols: *const libc::Elf64_Sym,
    names: *const libc::c_char,
    hash: *const u32,
    gnu_hash: *const u32,
    /// Relocations: of data, and of calls; each with its length in bytes.
    relocations: [(*const libc::Elf64_Rela, usize); 2],
}

/// A place of an object that has, or gets at its first use, the address of a symbol of another
/// object.
pub struct Place<'a> {
    /// The symbol's name.
    pub name: &'a CStr,
    /// The place.
    at: *mut usize,
    /// True if it is filled at the first call, by which it is a place of the object until then.
    pub is_call: bool,
}

/// Types of relocations to the address of a symbol.
#[cfg(target_arch = "x86_64")]
const ADDRESS: [u64; 2] = [1, 6];
#[cfg(target_arch = "x86_64")]
const CALL: u64 = 7;
#[cfg(target_arch = "aarch64")]
const ADDRESS: [u64; 2] = [257, 1025];
#[cfg(target_arch = "aarch64")]
const CALL: u64 = 1026;

impl Image {
    /// The object whose header is at this address. `None`: there is none.
    pub fn mapped(at: usize) -> Option<Image> {
        let header = std::ptr::with_exposed_provenance::<libc::Elf64_Ehdr>(at);
        // SAFETY: the kernel's object, mapped for good; its header is followed by its segments.
        unsafe {
            let header = header.as_ref()?;
            let list = at + header.e_phoff as usize;
            let list = std::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(list);
            let segments = std::slice::from_raw_parts(list, header.e_phnum.into());
            let first = segments.iter().find(|one| one.p_type == libc::PT_LOAD)?;
            Image::of(at - (first.p_vaddr - first.p_offset) as usize, segments)
        }
    }

    /// The object with these segments.
    ///
    /// # Safety
    /// The object is mapped, with this bias.
    pub unsafe fn of(bias: usize, segments: &[libc::Elf64_Phdr]) -> Option<Image> {
        let dynamic = segments.iter().find(|one| one.p_type == libc::PT_DYNAMIC)?;
        let mut at = std::ptr::with_exposed_provenance::<[u64; 2]>(bias + dynamic.p_vaddr as usize);
        let none = std::ptr::null::<u8>();
        let [mut symbols, mut names, mut hash, mut gnu_hash, mut data, mut calls] = [none; 6];
        let [mut data_len, mut calls_len] = [0; 2];
        // SAFETY: the object's dynamic section, which ends with a tag of 0.
        unsafe {
            while (*at)[0] != 0 {
                // The loader has added the bias in the objects that it may write to.
                let value = (*at)[1] as usize;
                match (*at)[0] {
                    DT_RELASZ => data_len = value,
                    DT_PLTRELSZ => calls_len = value,
                    _ => {}
                }
                let value = if value < bias { value + bias } else { value };
                let place = match (*at)[0] {
                    DT_SYMTAB => &mut symbols,
                    DT_STRTAB => &mut names,
                    DT_HASH => &mut hash,
                    DT_GNU_HASH => &mut gnu_hash,
                    DT_RELA => &mut data,
                    DT_JMPREL => &mut calls,
                    _ => {
                        at = at.add(1);
                        continue;
                    }
                };
                *place = std::ptr::with_exposed_provenance(value);
                at = at.add(1);
            }
        }
        let is_whole = !symbols.is_null() && !names.is_null();
        is_whole.then(|| Image {
            bias,
            symbols: symbols.cast(),
            names: names.cast(),
            hash: hash.cast(),
            gnu_hash: gnu_hash.cast(),
            relocations: [(data.cast(), data_len), (calls.cast(), calls_len)],
        })
    }

    /// Calls `each` with the places of symbols of other objects.
    pub fn each_place(&self, each: impl Fn(Place<'_>)) {
        for (list, len) in self.relocations.iter().filter(|(list, _)| !list.is_null()) {
            for i in 0..len / size_of::<libc::Elf64_Rela>() {
                // SAFETY: the object's relocations, which name its symbols.
                let (one, symbol) = unsafe {
                    let one = &*list.add(i);
                    (one, &*self.symbols.add((one.r_info >> 32) as usize))
                };
                let kind = one.r_info & 0xffff_ffff;
                let is_call = kind == CALL;
                if symbol.st_name != 0
                    && symbol.st_shndx == 0
                    && (is_call || ADDRESS.contains(&kind))
                {
                    let at = self.bias + one.r_offset as usize;
                    let at = std::ptr::with_exposed_provenance_mut(at);
                    // SAFETY: names of symbols are C strings.
                    let name = unsafe { CStr::from_ptr(self.names.add(symbol.st_name as usize)) };
                    each(Place { name, at, is_call });
                }
            }
        }
    }

    /// Returns the address of a symbol that the object defines.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        match (self.gnu_hash.is_null(), self.hash.is_null()) {
            (false, _) => self.find_by_gnu_hash(name),
            (true, false) => self.find_by_hash(name),
            _ => None,
        }
    }

    /// Returns the address of the symbol at this index, if it is the one of this name.
    fn defined(&self, at: u32, name: &[u8]) -> Option<usize> {
        // SAFETY: the hash tables name symbols of the object, whose names are C strings.
        unsafe {
            let symbol = &*self.symbols.add(at as usize);
            let own = CStr::from_ptr(self.names.add(symbol.st_name as usize));
            let is_it = symbol.st_shndx != 0 && symbol.st_value != 0 && own.to_bytes() == name;
            is_it.then(|| self.bias + symbol.st_value as usize)
        }
    }

    /// Layout: number of buckets, first symbol, words of a filter, a shift; the filter, the
    /// buckets, a word for each symbol, of which the last of a bucket is odd.
    fn find_by_gnu_hash(&self, name: &[u8]) -> Option<usize> {
        let add = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add((*byte).into());
        let wanted = name.iter().fold(5381, add);
        let table = self.gnu_hash;
        // SAFETY: the object's table, of this layout.
        unsafe {
            let [count, first, filter] = [0, 1, 2].map(|i| *table.add(i) as usize);
            let buckets = table.add(4 + 2 * filter);
            let words = buckets.add(count);
            let mut at = *buckets.add((wanted as usize).checked_rem(count)?);
            while at as usize >= first {
                let hash = *words.add(at as usize - first);
                if hash | 1 == wanted | 1 {
                    if let Some(found) = self.defined(at, name) {
                        return Some(found);
                    }
                }
                if hash & 1 != 0 {
                    break;
                }
                at += 1;
            }
        }
        None
    }

    /// Layout: number of buckets, number of symbols; then both lists.
    fn find_by_hash(&self, name: &[u8]) -> Option<usize> {
        // SAFETY: the object's table, of this layout: there is an entry for each symbol.
        let count = unsafe { *self.hash.add(1) };
        (0..count).find_map(|at| self.defined(at, name))
    }
}

/// The size of a page on the machines that this library is built for, or a part of it.
const PAGE: usize = 4096;

impl Place<'_> {
    /// Returns its address.
    pub fn address(&self) -> usize {
        self.at.addr()
    }

    /// Returns the address that it has.
    pub fn value(&self) -> usize {
        // SAFETY: a place of the object, which the loader has filled.
        unsafe { self.at.read() }
    }

    /// Sets it. `is_kept`: it is not to be written to, so that right is taken for the moment.
    pub fn set(&self, to: usize, is_kept: bool) {
        let page = self.at.map_addr(|at| at & !(PAGE - 1)).cast::<c_void>();
        // SAFETY: the page of the place; a write of an address is whole.
        unsafe {
            if is_kept && libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return;
            }
            self.at.write_volatile(to);
            if is_kept {
                libc::mprotect(page, PAGE, libc::PROT_READ);
            }
        }
    }
}

/// Returns the address of the symbol of a name in the objects behind this library.
pub fn next_of(name: &CStr) -> usize {
    // SAFETY: a C string. The search begins behind this library, which calls.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr()
}

/// Returns the address of the first symbol of a name.
pub fn first_of(name: &CStr) -> usize {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }.addr()
}

/// An object, its segments and the address of the first byte behind it.
pub struct Object<'a> {
    /// Its symbols.
    pub image: Image,
    /// Its segments.
    pub segments: &'a [libc::Elf64_Phdr],
    /// The number that is added to the addresses in it.
    pub bias: usize,
}

/// Calls `each` with the objects of this process, in the order of a search, until it returns true.
pub fn each_object(mut each: impl FnMut(Object<'_>) -> bool) {
    type Each<'a> = &'a mut dyn FnMut(Object<'_>) -> bool;
    unsafe extern "C" fn one(info: *mut dl_phdr_info, _: size_t, each: *mut c_void) -> c_int {
        // SAFETY: the loader's description, and the function below.
        unsafe {
            let (info, each) = (&*info, &mut *each.cast::<Each<'_>>());
            let (bias, count) = (info.dlpi_addr as usize, info.dlpi_phnum as usize);
            if info.dlpi_phdr.is_null() {
                return 0;
            }
            let segments = std::slice::from_raw_parts(info.dlpi_phdr, count);
            let image = Image::of(bias, segments);
            image.is_some_and(|image| each(Object { image, segments, bias })).into()
        }
    }
    let mut each: Each<'_> = &mut each;
    // SAFETY: the function, and its argument, which lives as long.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut each).cast()) };
}
