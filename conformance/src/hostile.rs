//! Bodies of the fuzz targets: hostile bytes into everything that reads bytes from a peer. Each must
//! return, whatever it is given; what it accepts must keep the stated properties. libFuzzer calls
//! them from `fuzz/`, the tests with seeded inputs.

use weft_core::wire;

/// The wire format: parsing never panics, and what parses encodes to the same bytes.
pub fn wire_parse(data: &[u8]) {
    let parsed = wire::parse(data);
    let view = wire::View::new_checked(data);
    assert_eq!(parsed.is_ok(), view.is_ok(), "the view and the parser disagree");
    let _ = wire::session_of(data);
    let (Ok((common, packet, len)), Ok(view)) = (parsed, view) else { return };
    assert_eq!(len, packet.header_len());
    assert!(len <= data.len());
    assert_eq!(view.packet_type(), packet.packet_type());
    assert_eq!((view.session(), view.seq(), view.ack()), (common.session, common.seq, common.ack));
    assert_eq!(view.header().len() + view.payload().len(), data.len());
    let again = wire::emit(&common, &packet);
    assert_eq!(again.as_slice(), &data[..len], "what was parsed encodes to other bytes");
    assert!(!view.to_string().contains('\n'));
}
