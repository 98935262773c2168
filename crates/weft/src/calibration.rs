//! Measurements by `weft tune` on this machine, which replace the links' estimates.
//!
//! The file is a small TOML table: numbers and plain strings under `[link.NAME]` and
//! `[eager.SMALL.DATA]`. Endpoints read the file once; a broken file, or one of another machine, is
//! ignored with one warning.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use weft_core::LinkCaps;

/// Version of the file's format.
const VERSION: u64 = 1;
/// Longest file that is read, in bytes.
const FILE_MAX: u64 = 64 << 10;
/// Most tables of a file.
const TABLES_MAX: usize = 64;
/// Largest valid figure: a second in nanoseconds, a terabyte a second.
const FIGURE_MAX: u64 = 1_000_000_000;

/// Figures of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// Name of the link: `shm`, `udp`, ...
    pub link: String,
    /// Description of the place of measurement.
    pub place: String,
    /// One-way time of a small message, nanoseconds.
    pub latency_ns: u32,
    /// Rate of data that was asked for, bytes per microsecond.
    pub bytes_per_us: u32,
    /// Rate of messages sent at once, bytes per microsecond.
    pub small_bytes_per_us: u32,
    /// Smallest messages in one direction, per millisecond; shown to people only.
    pub messages_per_ms: u32,
}

/// The longest eager message where small packets take one link and data another (or the same).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// Link of small packets.
    pub small: String,
    /// Link of data.
    pub data: String,
    /// Longest eager message, bytes.
    pub eager_max: u32,
}

/// The machine that figures belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Hash of the machine's identity and processor.
    pub host: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Processors.
    pub cores: u64,
}

impl Machine {
    /// Returns the machine of this process.
    pub fn here() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let info = read("/proc/cpuinfo");
        let model = info.lines().find(|l| l.starts_with("model name")).unwrap_or("");
        let text = format!("{}\n{model}", read("/etc/machine-id").trim());
        // FNV-1a, 64 bits: it tells machines apart and has no use for security.
        let host = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let kernel = plain(read("/proc/sys/kernel/osrelease").trim());
        Machine { host, kernel, cores: crate::cores::of_host() as u64 }
    }

    /// Returns the difference from another machine, as text.
    fn differs(&self, here: &Machine) -> Option<String> {
        if self.host != here.host {
            return Some("it was made on another machine".into());
        }
        if self.kernel != here.kernel {
            return Some(format!(
                "it was made under kernel {}, this is {}",
                self.kernel, here.kernel
            ));
        }
        (self.cores != here.cores)
            .then(|| format!("it was made with {} cores, here are {}", self.cores, here.cores))
    }
}

/// Figures of a machine's links. The default has none: all links keep their estimates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Time of making, in seconds since 1970.
    pub made: u64,
    /// The machine it was made on.
    pub machine: Machine,
    /// Links.
    pub links: Vec<LinkFigures>,
    /// Switch-overs from eager to rendezvous.
    pub switches: Vec<Switch>,
}

/// Returns text with only characters that are valid between quotes.
fn plain(text: &str) -> String {
    let fine = |c: char| !c.is_control() && c != '"' && c != '\\';
    text.chars().map(|c| if fine(c) { c } else { ' ' }).take(200).collect()
}

/// The table of the file that is being read.
enum Table {
    Top,
    Link(usize),
    Switch(usize),
}

fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{value:?} is no number"))
}

fn text(value: &str) -> Result<String, String> {
    let inner = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
    let inner = inner.ok_or_else(|| format!("{value:?} is no string"))?;
    Ok(plain(inner))
}

fn figure(value: &str) -> Result<u32, String> {
    let figure = number(value)?;
    let fits = (1..=FIGURE_MAX).contains(&figure);
    fits.then_some(figure as u32).ok_or_else(|| format!("{figure} makes no sense"))
}

impl Calibration {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// A text with the first invalid line, and why it is invalid.
    pub fn parse(file: &str) -> Result<Calibration, String> {
        let (mut made, mut version, mut table) = (Calibration::default(), None, Table::Top);
        for (at, line) in file.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = match line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                Some(name) => made.open(name).map(|opened| table = opened),
                None => line.split_once('=').ok_or_else(|| "no key = value".into()).and_then(
                    |(key, value)| match (key.trim(), value.trim()) {
                        ("version", v) => number(v).map(|v| version = Some(v)),
                        (key, value) => made.set(&table, key, value),
                    },
                ),
            };
            read.map_err(|e| format!("line {}: {e}", at + 1))?;
        }
        match version {
            Some(VERSION) => made.complete(),
            Some(other) => Err(format!("it has version {other}, this weft reads {VERSION}")),
            None => Err("it has no version".into()),
        }
    }

    fn open(&mut self, name: &str) -> Result<Table, String> {
        if self.links.len() + self.switches.len() >= TABLES_MAX {
            return Err(format!("more than {TABLES_MAX} tables"));
        }
        let words: Vec<String> = name.splitn(4, '.').map(plain).collect();
        match &words[..] {
            [kind, link] if kind == "link" => {
                self.links.push(LinkFigures { link: link.clone(), ..LinkFigures::default() });
                Ok(Table::Link(self.links.len() - 1))
            }
            [kind, small, data] if kind == "eager" => {
                let (small, data) = (small.clone(), data.clone());
                self.switches.push(Switch { small, data, eager_max: 0 });
                Ok(Table::Switch(self.switches.len() - 1))
            }
            _ => Err(format!("no table [{}]", plain(name))),
        }
    }

    fn set(&mut self, table: &Table, key: &str, value: &str) -> Result<(), String> {
        match *table {
            Table::Top => match key {
                "made" => self.made = number(value)?,
                "cores" => self.machine.cores = number(value)?,
                "kernel" => self.machine.kernel = text(value)?,
                "host" => {
                    let host = u64::from_str_radix(&text(value)?, 16);
                    self.machine.host = host.map_err(|_| "the host is no hash")?;
                }
                _ => return Err(format!("no key {:?}", plain(key))),
            },
            Table::Link(at) => {
                let link = &mut self.links[at];
                match key {
                    "place" => link.place = text(value)?,
                    "latency_ns" => link.latency_ns = figure(value)?,
                    "bytes_per_us" => link.bytes_per_us = figure(value)?,
                    "small_bytes_per_us" => link.small_bytes_per_us = figure(value)?,
                    "messages_per_ms" => link.messages_per_ms = figure(value)?,
                    _ => return Err(format!("no key {:?} of a link", plain(key))),
                }
            }
            Table::Switch(at) => match key {
                "bytes" => self.switches[at].eager_max = figure(value)?,
                _ => return Err(format!("no key {:?} of a switch-over", plain(key))),
            },
        }
        Ok(())
    }

    fn complete(self) -> Result<Calibration, String> {
        let whole = |l: &LinkFigures| {
            [l.latency_ns, l.bytes_per_us, l.small_bytes_per_us].iter().all(|&n| n > 0)
        };
        if let Some(link) = self.links.iter().find(|l| !whole(l)) {
            return Err(format!("figures of link {} are missing", link.link));
        }
        match self.switches.iter().find(|s| s.eager_max == 0) {
            Some(s) => Err(format!("the size of [eager.{}.{}] is missing", s.small, s.data)),
            None => Ok(self),
        }
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let mut out = String::from("# Measured by `weft tune`; `weft tune --forget` removes it.\n");
        let Machine { host, kernel, cores } = &self.machine;
        // Writing to a string does not fail.
        let _ = writeln!(out, "version = {VERSION}\nmade = {}\nhost = \"{host:016x}\"", self.made);
        let _ = writeln!(out, "kernel = \"{}\"\ncores = {cores}", plain(kernel));
        for l in &self.links {
            let _ = writeln!(out, "\n[link.{}]\nplace = \"{}\"", l.link, plain(&l.place));
            let _ =
                writeln!(out, "latency_ns = {}\nbytes_per_us = {}", l.latency_ns, l.bytes_per_us);
            let _ = writeln!(out, "small_bytes_per_us = {}", l.small_bytes_per_us);
            if l.messages_per_ms > 0 {
                let _ = writeln!(out, "messages_per_ms = {}", l.messages_per_ms);
            }
        }
        for s in &self.switches {
            let _ = writeln!(out, "\n[eager.{}.{}]\nbytes = {}", s.small, s.data, s.eager_max);
        }
        out
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// A text that says why the file cannot be read or parsed.
    pub fn read(path: &Path) -> Result<Option<Calibration>, String> {
        let meta = match std::fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| e.to_string())?,
        };
        // Opening a pipe would wait for its writer.
        if !meta.is_file() || meta.len() > FILE_MAX {
            return Err("it is no calibration".into());
        }
        let mut file = String::new();
        let open = std::fs::File::open(path).map_err(|e| e.to_string())?;
        open.take(FILE_MAX).read_to_string(&mut file).map_err(|e| e.to_string())?;
        Calibration::parse(&file).map(Some)
    }

    /// Reads a file, and refuses figures of another machine; `None` if there is no file. See
    /// [`read`](Self::read) for figures of any machine.
    ///
    /// # Errors
    /// Returns the errors of [`read`](Self::read), or a text with the difference from this machine.
    pub fn read_for(path: &Path, here: &Machine) -> Result<Option<Calibration>, String> {
        let read = Calibration::read(path)?;
        match read.as_ref().and_then(|c| c.machine.differs(here)) {
            Some(why) => Err(why),
            None => Ok(read),
        }
    }

    /// Replaces a file atomically: a reader sees the old file or the new one.
    ///
    /// # Errors
    /// The system refused.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder)?;
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", std::process::id()));
        let new = PathBuf::from(name);
        let written =
            std::fs::write(&new, self.to_text()).and_then(|()| std::fs::rename(&new, path));
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written
    }

    /// Returns the path of the file: `WEFT_TUNE`, else `weft/calibration.toml` in the user's
    /// settings folder. `None` if `WEFT_TUNE=off` or there is no such folder.
    pub fn path_from_env() -> Option<PathBuf> {
        let var = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        match var("WEFT_TUNE") {
            Some(off) if off == "off" => return None,
            Some(path) => return Some(path.into()),
            None => {}
        }
        let home = || Some(PathBuf::from(var("HOME")?).join(".config"));
        let folder = var("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        Some(folder.or_else(home)?.join("weft").join("calibration.toml"))
    }

    /// Returns the calibration of this process's endpoints, which the first call reads. It is empty
    /// without a file, or if the file cannot be used; the latter is logged once.
    pub fn in_use() -> &'static Calibration {
        static IN_USE: OnceLock<Calibration> = OnceLock::new();
        IN_USE.get_or_init(|| {
            let Some(path) = Calibration::path_from_env() else { return Calibration::default() };
            let named = std::env::var_os("WEFT_TUNE").is_some_and(|v| !v.is_empty());
            let why = match Calibration::read_for(&path, &Machine::here()) {
                Ok(Some(found)) => return found,
                Ok(None) if named => "there is no such file".to_string(),
                Ok(None) => return Calibration::default(),
                Err(why) => why,
            };
            weft_link::warn!(
                "the calibration {} is not used: {why}; `weft tune` makes it anew, `weft tune \
                 --forget` removes it, WEFT_TUNE=off does without",
                path.display()
            );
            Calibration::default()
        })
    }

    /// Returns the figures of a link.
    pub fn link(&self, name: &str) -> Option<&LinkFigures> {
        self.links.iter().find(|l| l.link == name)
    }

    /// Returns capabilities of a link in which measurements replace estimates.
    pub fn apply(&self, mut caps: LinkCaps) -> LinkCaps {
        if let Some(l) = self.link(caps.name) {
            (caps.latency_ns, caps.bytes_per_us) = (l.latency_ns, l.bytes_per_us);
            caps.small_bytes_per_us = l.small_bytes_per_us;
        }
        caps
    }

    /// Returns the longest eager message if small packets and data take these links; 0 if unknown.
    pub fn eager_max(&self, small: &str, data: &str) -> u32 {
        let found = self.switches.iter().find(|s| s.small == small && s.data == data);
        found.map_or(0, |s| s.eager_max)
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    fn sample() -> Calibration {
        let link = |name: &str, latency_ns, bytes_per_us| LinkFigures {
            link: name.into(),
            place: "two hosts of a lab, MTU 1500".into(),
            latency_ns,
            bytes_per_us,
            small_bytes_per_us: 400,
            messages_per_ms: 900,
        };
        Calibration {
            made: 1_763_775_000,
            machine: Machine::here(),
            links: vec![link("packet", 2_100, 500), link("udp", 4_900, 2_700)],
            switches: vec![Switch { small: "packet".into(), data: "udp".into(), eager_max: 8192 }],
        }
    }

    fn scratch(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id())).join("c.toml")
    }

    #[test]
    fn write__what_is_read_again() {
        let path = scratch("calibration");
        assert_eq!(Calibration::read(&path), Ok(None));
        sample().write(&path).unwrap();
        assert_eq!(Calibration::read_for(&path, &Machine::here()), Ok(Some(sample())));
        let beside = std::fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(beside, 1, "nothing is left beside it");
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn read_for__another_machine_is_refused() {
        let path = scratch("foreign");
        let here = Machine::here();
        for (machine, why) in [
            (Machine { host: !here.host, ..here.clone() }, "another machine"),
            (Machine { kernel: "0.99".into(), ..here.clone() }, "under kernel 0.99"),
            (Machine { cores: here.cores + 3, ..here.clone() }, "cores"),
        ] {
            Calibration { machine, ..sample() }.write(&path).unwrap();
            let refused = Calibration::read_for(&path, &here).unwrap_err();
            assert!(refused.contains(why), "{refused}");
        }
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }

    #[test]
    fn parse__broken_files_name_the_line() {
        for (file, why) in [
            ("", "no version"),
            ("version = 2", "version 2"),
            ("version = 1\nwhat", "line 2"),
            ("version = 1\n[link]", "line 2"),
            ("version = 1\n[link.udp]\nlatency_ns = 0", "line 3"),
            ("version = 1\n[link.udp]\nlatency_ns = 99999999999", "line 3"),
            ("version = 1\n[link.udp]\nlatency_ns = 1", "link udp are missing"),
            ("version = 1\n[eager.a.b]", "[eager.a.b]"),
            ("version = 1\nhost = \"xyz\"", "no hash"),
        ] {
            let error = Calibration::parse(file).unwrap_err();
            assert!(error.contains(why), "{file:?}: {error}");
        }
        let many = "[link.x]\n".repeat(TABLES_MAX + 1);
        assert!(Calibration::parse(&many).unwrap_err().contains("more than"));
    }

    #[test]
    fn parse__any_cut_or_changed_byte_is_answered() {
        let text = sample().to_text();
        for at in 0..text.len() {
            let _ = Calibration::parse(&text[..at]);
            for byte in [b'[', b'=', b'"', b'9', b'\n'] {
                let mut changed = text.clone().into_bytes();
                changed[at] = byte;
                if let Ok(read) = Calibration::parse(&String::from_utf8_lossy(&changed)) {
                    assert_eq!(Calibration::parse(&read.to_text()), Ok(read));
                }
            }
        }
    }

    #[test]
    fn read__a_folder_is_no_calibration() {
        assert!(Calibration::read(&std::env::temp_dir()).is_err());
    }

    #[test]
    fn apply__only_what_was_measured() {
        let caps = sample().apply(LinkCaps::network("udp", 1456));
        assert_eq!((caps.latency_ns, caps.bytes_per_us), (4_900, 2_700));
        assert_eq!((caps.small_bytes_per_us, caps.mtu), (400, 1456));
        let other = LinkCaps::network("xdp", 1456);
        assert_eq!(sample().apply(other), other);
        assert_eq!(sample().eager_max("packet", "udp"), 8192);
        assert_eq!(sample().eager_max("udp", "udp"), 0);
    }
}
