//! Direct copies, and memory that is mapped by both sides.

use super::*;
use crate::shm::ring::Area as _;

#[test]
fn direct__copies_between_processes() {
    let (mut a, b) = pair();
    let source = pattern(1, 3 << 20);
    let mut target = vec![0; source.len()];
    a.read_direct(PEER, source.as_ptr() as u64, &mut target).unwrap();
    assert_eq!(source, target);
    let mut target = vec![0; source.len()];
    a.write_direct(PEER, target.as_mut_ptr() as u64, &source).unwrap();
    assert_eq!(source, target);
    let bad = a.read_direct(PEER, 8, &mut target);
    assert!(matches!(bad, Err(LinkError::System { .. })));
    drop(b);
}

#[test]
fn take_back_memory__the_peer_copies_no_more_and_we_do() {
    let (mut a, mut b) = pair();
    let (source, mut target) = (pattern(1, 5000), vec![0; 5000]);
    let at = source.as_ptr() as u64;
    b.read_direct(PEER, at, &mut target).unwrap();
    a.take_back_memory(PEER);
    let refused = b.read_direct(PEER, at, &mut target);
    assert!(refused.is_err_and(|e| e.to_string().contains("taken its memory back")));
    assert!(b.write_direct(PEER, target.as_mut_ptr() as u64, &source).is_err());
    a.read_direct(PEER, at, &mut target).unwrap();
    // The end of a connection revokes all access.
    a.disconnect(PEER);
    let (mut a, mut b) = pair();
    b.read_direct(PEER, at, &mut target).unwrap();
    b.disconnect(PEER);
    assert!(a.write_direct(PEER, target.as_mut_ptr() as u64, &source).is_err());
    let (mut a, b) = pair();
    drop(b);
    assert!(a.write_direct(PEER, target.as_mut_ptr() as u64, &source).is_err());
}

#[test]
fn take_back_memory__waits_for_a_copy_that_is_under_way() {
    let (mut a, b) = pair();
    let (copied, done) = (std::sync::atomic::AtomicBool::new(false), std::sync::mpsc::channel());
    std::thread::scope(|s| {
        let copying = b.peers[0].begin_copy().unwrap();
        let copied = &copied;
        s.spawn(move || {
            a.take_back_memory(PEER);
            done.0.send(copied.load(std::sync::atomic::Ordering::SeqCst)).unwrap();
        });
        // The peer has set the flag, and may not return before the copy has ended.
        while b.peers[0].tx.area.hint().taken_back.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        assert!(b.peers[0].tx.area.producer().copying.load(Ordering::SeqCst) == 1);
        copied.store(true, std::sync::atomic::Ordering::SeqCst);
        drop(copying);
    });
    assert!(done.1.recv().unwrap(), "it returned while the copy was under way");
    assert!(b.peers[0].begin_copy().is_none());
}

#[test]
fn direct__forbidden_falls_back() {
    let off = ShmConfig { direct: DirectCopy::Off, ..config(1) };
    let (mut a, b) = pair_of(off, config(2));
    assert!(!a.path_caps(a.peers.find(PEER).unwrap()).direct);
    let mut into = [0; 8];
    assert!(matches!(a.read_direct(PEER, 0, &mut into), Err(LinkError::Unsupported)));
    assert!(matches!(a.write_direct(PEER, 0, &into), Err(LinkError::Unsupported)));
    drop(b);
}

/// Returns the contents of a block.
fn bytes_of(block: &Block, len: usize) -> Vec<u8> {
    block.bytes(len).to_vec()
}

#[test]
fn share__memory_is_written_and_read_where_it_is_mapped_until_it_is_forgotten() {
    let (mut a, mut b) = pair();
    let (block, source) = (Block::new(3 << 20).unwrap(), pattern(1, 3 << 20));
    let addr = block.start().addr() as u64;
    assert!(b.share(PEER, 7, &block));
    a.service();
    a.write_direct(PEER, addr, &source).unwrap();
    assert_eq!(counter(&a, "shm_mapped"), 1);
    assert_eq!(bytes_of(&block, source.len()), source);
    let mut got = vec![0; 100];
    a.read_direct(PEER, addr + 5000, &mut got).unwrap();
    assert_eq!((counter(&a, "shm_mapped"), &got[..]), (2, &source[5000..5100]));
    // This memory is outside the block.
    let other = [0_u8; 64];
    a.write_direct(PEER, other.as_ptr() as u64, &[5; 64]).unwrap();
    assert_eq!(counter(&a, "shm_mapped"), 2);
    // A block shared before the call is forgotten, whether its message was read or not.
    assert!(b.share(PEER, 8, &block));
    a.forget_shared(PEER, 8);
    a.forget_shared(PEER, 7);
    a.write_direct(PEER, addr, &[9; 10]).unwrap();
    assert_eq!((counter(&a, "shm_mapped"), bytes_of(&block, 10)), (2, vec![9; 10]));
    // Key 7 names other memory each time.
    for key in [7, 7] {
        let next = Block::new(1 << 16).unwrap();
        assert!(b.share(PEER, key, &next));
        a.service();
        a.write_direct(PEER, next.start().addr() as u64, &[3; 8]).unwrap();
        assert_eq!(bytes_of(&next, 8), [3; 8]);
    }
    assert_eq!(counter(&a, "shm_mapped"), 4);
}

#[test]
fn share__a_rank_without_it_gets_no_message_about_it() {
    let off = ShmConfig { direct: DirectCopy::Off, ..config(1) };
    let (mut a, mut b) = pair_of(off, config(2));
    let block = Block::new(1 << 16).unwrap();
    assert!(b.share(PEER, 7, &block) && !a.share(PEER, 7, &block));
    a.service();
    b.service();
    let written = a.write_direct(PEER, block.start().addr() as u64, &[1; 8]);
    assert!(matches!(written, Err(LinkError::Unsupported)));
    assert_eq!((counter(&a, "shm_lies"), a.poll_event().is_none()), (0, true));
}

#[test]
fn share__bad_files_and_too_many_are_left_and_the_connection_lives() {
    let (mut a, mut b) = pair();
    let blocks: Vec<_> = (0..300).map(|_| Block::new(1 << 16).unwrap()).collect();
    for (block, key) in blocks.iter().zip(0..) {
        while !b.share(PEER, key, block) {
            a.service();
        }
    }
    let plain = std::fs::File::open("/proc/self/exe").unwrap();
    let (addr, file) = (blocks[0].start().addr() as u64, plain.as_fd());
    for (key, addr, len) in [(1000, addr, 1 << 16), (1001, u64::MAX, 1 << 16), (1002, 0, 0)] {
        let message = rendezvous::Shared { key, addr, len }.encode();
        sys::socket::send(&b.peers.find(PEER).unwrap().socket.fd, &message, Some(file)).unwrap();
    }
    a.service();
    for block in &blocks {
        a.write_direct(PEER, block.start().addr() as u64, &[4; 100]).unwrap();
        assert_eq!(bytes_of(block, 100), [4; 100]);
    }
    assert_eq!(counter(&a, "shm_mapped"), 256);
    assert_eq!((counter(&a, "shm_lies"), a.poll_event().is_none()), (0, true));
}

#[test]
fn share__memory_of_a_rank_that_has_ended_is_not_written() {
    let (mut a, mut b) = pair();
    let block = Block::new(1 << 16).unwrap();
    assert!(b.share(PEER, 7, &block));
    a.service();
    let addr = block.start().addr() as u64;
    a.write_direct(PEER, addr, &[1; 8]).unwrap();
    // A killed peer revokes nothing. Its end is noticed after some copies at the latest, without
    // progress of the link.
    b.peers[0].copies = false;
    drop(b);
    let ended = (0..2 * DIRECT_CALLS).any(|_| {
        a.write_direct(PEER, addr, &[1; 8]).unwrap();
        counter(&a, "shm_mapped") < counter(&a, "shm_direct")
    });
    assert!(ended, "it goes by the kernel then, which knows the process");
}

#[test]
fn direct__of_the_wrong_process_is_noticed() {
    let (mut a, mut b) = (ShmLink::new(config(1)).unwrap(), ShmLink::new(config(2)).unwrap());
    *b.probe ^= 1;
    let wrong = *b.probe;
    a.connect(&info(0, &address_of(&b))).unwrap();
    b.service();
    *b.probe = wrong ^ 1;
    assert!(a.read_direct(PEER, 0, &mut [0; 8]).is_err());
    assert!(matches!(events(&mut a)[..], [LinkEvent::Warning(_)]));
    assert!(!a.path_caps(a.peers.find(PEER).unwrap()).direct);
}
