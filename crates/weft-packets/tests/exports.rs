//! The end of exported memory with its endpoint. This test has its own process, since it counts
//! open files.
#![allow(non_snake_case)]

use weft::{Clock, Config, Endpoint, EndpointId};
use weft_link::{ShmConfig, ShmLink};
use weft_packets::Packets;

/// Returns the number of memory files that this process has open.
fn memory_files() -> usize {
    let files = std::fs::read_dir("/proc/self/fd").unwrap();
    let name =
        |file: std::io::Result<std::fs::DirEntry>| std::fs::read_link(file.ok()?.path()).ok();
    files.filter_map(name).filter(|n| n.to_string_lossy().starts_with("/memfd:weft")).count()
}

#[test]
fn export__is_free_when_its_endpoint_ends_and_no_pointer_is_left() {
    let link = ShmLink::new(ShmConfig::new(EndpointId(1))).unwrap();
    let endpoint = Endpoint::with_links(
        Config::default(),
        EndpointId(1),
        Clock::system(),
        vec![Box::new(link)],
    );
    let packets = Packets::new(&endpoint).unwrap();
    let exported: Vec<_> = (0..20).map(|_| packets.exports().make(1 << 20).unwrap()).collect();
    assert_eq!(memory_files(), 20);
    assert!(packets.exports().end_blocking(exported[0]).is_some());
    assert_eq!(memory_files(), 19);
    drop((packets, endpoint));
    assert_eq!(memory_files(), 0);
}
