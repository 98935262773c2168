//! Packets of an interface as Wireshark shows them, with the dissector of this repository.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The dissector.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/weft.lua");

/// Bound of a wait; reached only when something is broken.
const LIMIT: Duration = Duration::from_secs(120);
/// Port of the marks: the discard service, which no host here offers.
const MARK_PORT: u16 = 9;

/// A running capture of one interface.
pub struct Capture {
    child: Child,
    file: PathBuf,
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Capture {
    /// Captures an interface of the calling thread's network namespace into a file; the capture
    /// runs when this returns.
    ///
    /// # Errors
    /// The output of a capture that cannot run.
    pub fn start(interface: &str, file: &Path) -> Result<Capture, String> {
        Capture::by(Command::new("dumpcap"), interface, file)
    }

    /// Starts a capture by a command that becomes `dumpcap`.
    ///
    /// # Errors
    /// The output of a capture that cannot run.
    pub fn by(mut command: Command, interface: &str, file: &Path) -> Result<Capture, String> {
        command.args(["-q", "-i", interface, "-w"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| format!("needs dumpcap (tshark): {e}"))?;
        let mut capture = Capture { child, file: file.to_owned() };
        let errors = capture.child.stderr.take().ok_or("no standard error")?;
        let mut said = String::new();
        for line in BufReader::new(errors).lines() {
            said += &line.map_err(|e| e.to_string())?;
            // The program prints the name of the file once it captures.
            if said.contains("File: ") {
                return Ok(capture);
            }
        }
        Err(format!("dumpcap: {said}"))
    }

    /// Ends the capture. `mark` sends a text over the interface, to UDP port 9: once the mark is in
    /// the file, all earlier packets are too.
    ///
    /// # Panics
    /// The mark does not arrive.
    pub fn finish(self, mark: impl Fn(&str)) {
        let text = format!("mark {:?}", Instant::now());
        let end = Instant::now() + LIMIT;
        loop {
            mark(&text);
            let bytes = std::fs::read(&self.file).unwrap_or_default();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                return;
            }
            assert!(Instant::now() < end, "no mark in {}", self.file.display());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Writes UDP datagrams of these contents into a new capture file.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &Path, datagrams: &[Vec<u8>]) -> std::io::Result<()> {
    // The older format: byte order and version, then a header for each packet (pcap(5)).
    const RAW_IP: u32 = 101;
    let mut out = Vec::new();
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x4_0000, RAW_IP];
    words.iter().for_each(|word: &u32| out.extend(word.to_le_bytes()));
    for datagram in datagrams {
        let len = datagram.len() + 28;
        [0, 0, len as u32, len as u32].iter().for_each(|word: &u32| out.extend(word.to_le_bytes()));
        let [high, low] = (len as u16).to_be_bytes();
        out.extend([0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let udp = [57_005_u16, 57_006, len as u16 - 20, 0];
        udp.iter().for_each(|word| out.extend(word.to_be_bytes()));
        out.extend(datagram);
    }
    std::fs::write(file, out)
}

/// A frame as the dissector shows it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The protocols in it, from the outermost.
    pub protocols: Vec<String>,
    /// The types of the weft packets in it.
    pub types: Vec<u8>,
    /// The payload of each weft packet that has one, in hexadecimal.
    pub payloads: Vec<String>,
    /// True if it is malformed, or its reserved bytes are set.
    pub bad: bool,
}

impl Seen {
    /// Returns true if it contains a protocol.
    pub fn has(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|p| p == protocol)
    }
}

fn seen(line: &str) -> Seen {
    let mut fields = line.split('\t');
    let mut list = |at: char| -> Vec<String> {
        let words = fields.next().unwrap_or_default().split(at);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let (protocols, types, payloads) = (list(':'), list(','), list(','));
    let types = types.iter().filter_map(|number| number.parse().ok()).collect();
    let bad = fields.any(|rest| !rest.is_empty());
    Seen { protocols, types, payloads, bad }
}

/// Reads the frames of a file that match a filter of Wireshark, without marks.
///
/// # Errors
/// Tshark is not installed.
///
/// # Panics
/// Tshark refuses the file, or the dissector fails.
pub fn read(file: &Path, filter: &str) -> Result<Vec<Seen>, String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(file).args(["-X", &format!("lua_script:{SCRIPT}"), "-Y"]);
    command.arg(format!("({filter}) && !(udp.dstport == {MARK_PORT}) && !icmp"));
    // The protocol `tapa` may take a number of a counter for its own.
    command.args(["--disable-protocol", "tapa", "-T", "fields"]);
    let fields = ["frame.protocols", "weft.type", "weft.payload", "_ws.malformed", "_ws.expert"];
    command.args(fields.iter().flat_map(|field| ["-e", *field]));
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("needs tshark: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    // A capture that was ended may lack the end of its last frame.
    let good = out.status.success() || said.contains("cut short in the middle");
    assert!(good && !said.contains("Lua"), "tshark {}: {said}", file.display());
    Ok(String::from_utf8_lossy(&out.stdout).lines().map(seen).collect())
}
