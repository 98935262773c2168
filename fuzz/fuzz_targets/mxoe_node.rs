#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weft_conformance::hostile::mxoe_node(data));
