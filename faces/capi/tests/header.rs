//! Checks that `weft.h` declares the library's functions, their types, and its numbers.
#![allow(non_snake_case)]

use std::collections::BTreeMap;

const HEADER: &str = include_str!("../include/weft.h");
/// The functions that programs call.
const FUNCTIONS: [&str; 5] = [
    include_str!("../src/functions/sys/collective.rs"),
    include_str!("../src/functions/sys/job.rs"),
    include_str!("../src/functions/sys/messages.rs"),
    include_str!("../src/functions/sys/names.rs"),
    include_str!("../src/functions/sys/packets.rs"),
];
/// The numbers that they take and return.
const NUMBERS: [&str; 7] = [
    include_str!("../src/fault.rs"),
    include_str!("../src/job/mod.rs"),
    include_str!("../src/functions/collective.rs"),
    include_str!("../src/functions/group.rs"),
    include_str!("../src/functions/member.rs"),
    include_str!("../src/functions/names.rs"),
    include_str!("../src/functions/tree.rs"),
];

const CRL: &str = include_str!("../include/crl.h");
const CRL_FUNCTIONS: &str = include_str!("../src/crl/sys.rs");

/// Returns the C name of a type of the binary interface.
fn in_c(kind: &str) -> String {
    if let Some(of) = kind.strip_prefix("*mut ") {
        return format!("{}*", in_c(of));
    }
    if let Some(of) = kind.strip_prefix("*const ") {
        return format!("const {}*", in_c(of));
    }
    match kind {
        "" => "void",
        "c_int" => "int",
        "c_char" => "char",
        "c_void" => "void",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "c_uint" => "unsigned",
        "f64" => "double",
        "WeftJob" => "weft_job",
        "WeftPacket<'_>" => "weft_packet",
        "WeftBuffer" => "weft_buffer",
        "WeftGroup" => "weft_group",
        "WeftRequest" => "weft_request",
        "WeftMessage" => "weft_message",
        "WeftStatus" => "weft_status",
        "WeftSet" => "weft_set",
        "WeftComm" => "weft_comm",
        "WeftNames" => "weft_names",
        "WeftNamesWatch" => "weft_names_watch",
        "WeftNamesEvent" => "weft_names_event",
        "WeftMember" => "weft_member",
        "WeftMemberEvent" => "weft_member_event",
        "WeftMemberId" => "weft_member_id",
        "WeftOwner" => "weft_owner",
        "Option<WeftUpcall>" => "weft_upcall",
        other => panic!("no C name for {other}"),
    }
    .into()
}

/// Returns the functions of the sources by name: result and parameters, without spaces after stars.
/// Two names before one list of parameters are an operation that waits, and its start.
fn of_sources(sources: &[&str]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let is_ours = |text: &&str| ["weft_", "crl_", "rgn_"].iter().any(|of| text.starts_with(of));
    for function in sources.iter().flat_map(|source| source.split("fn ")).filter(is_ours) {
        let (names, rest) = function.split_once('(').unwrap();
        let (parameters, rest) = rest.split_once(')').unwrap();
        let types = types(parameters);
        if let Some((wait, start)) = names.split_once(" | ") {
            let comma = if types.is_empty() { "" } else { "," };
            let of_both = format!("weft_comm*{comma}{types}");
            found.insert(wait.into(), format!("int ({of_both})"));
            found.insert(start.into(), format!("int ({of_both},weft_request**)"));
            continue;
        }
        let types = if types.is_empty() { "void".into() } else { types };
        let result = rest.split('{').next().unwrap().trim().trim_start_matches("->");
        found.insert(names.into(), format!("{} ({types})", in_c(result.trim())));
    }
    found
}

/// Returns the types of parameters in C.
fn types(parameters: &str) -> String {
    let types = parameters.split(',').filter_map(|p| p.split_once(':'));
    types.map(|(_, kind)| in_c(kind.trim())).collect::<Vec<_>>().join(",")
}

/// Returns the header without comments.
fn code(header: &str) -> String {
    let mut rest = header;
    let mut out = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        out.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    out + rest
}

/// Returns the type in a parameter with or without a name.
fn type_of(parameter: &str) -> String {
    let text = parameter.replace('*', " * ");
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let named = words.len() > 1 && !words.ends_with(&["*"]) && words != ["const", "void"];
    if named {
        words.pop();
    }
    words.join(" ").replace(" *", "*")
}

/// Returns the functions of the header in the same form.
fn of_header(header: &str) -> BTreeMap<String, String> {
    let code = code(header);
    let lines = code.lines().filter(|line| !line.starts_with('#'));
    let text: String = lines.collect::<Vec<_>>().join(" ");
    let text = text.replace("extern \"C\" {", "");
    let mut found = BTreeMap::new();
    for statement in text.split(';').map(str::trim).filter(|s| !s.starts_with("typedef")) {
        let Some((head, parameters)) = statement.split_once('(') else { continue };
        let parameters = parameters.trim().trim_end_matches(')');
        let at = head.rfind([' ', '*']).unwrap() + 1;
        let (result, name) = (type_of(&format!("{} x", &head[..at])), head[at..].to_string());
        let types: Vec<_> = parameters.split(',').map(type_of).collect();
        found.insert(name, format!("{result} ({})", types.join(",")));
    }
    found
}

#[test]
fn header__declares_every_function_with_its_types() {
    let (header, sources) = (of_header(HEADER), of_sources(&FUNCTIONS));
    assert!(sources.len() > 30, "{sources:?}");
    for (name, kind) in &sources {
        assert_eq!(header.get(name), Some(kind), "{name}");
    }
    assert!(header.keys().eq(sources.keys()), "{:?}", header.keys());
}

#[test]
fn header__of_crl_declares_every_function_with_its_types() {
    let of_library = CRL.split_once("#else /* CRL_NULL").unwrap().0;
    let (mut header, sources) = (of_header(of_library), of_sources(&[CRL_FUNCTIONS]));
    for kind in header.values_mut() {
        *kind = kind.replace("rid_t", "uint64_t");
    }
    assert!(sources.len() > 15, "{sources:?}");
    assert_eq!(header, sources);
    for global in ["crl_self_addr", "crl_num_nodes"] {
        assert!(CRL.contains(&format!("extern unsigned {global};")), "{global}");
        assert!(CRL_FUNCTIONS.contains(&format!("pub static {global}: AtomicU32")), "{global}");
    }
}

#[test]
fn header__defines_every_number() {
    let mut numbers = BTreeMap::new();
    let of_all = NUMBERS.iter().flat_map(|source| source.lines());
    for line in of_all.filter_map(|line| line.trim().strip_prefix("pub const WEFT_")) {
        let (name, value) = line.split_once(": c_int = ").unwrap();
        numbers.insert(format!("WEFT_{name}"), value.trim_end_matches(';').to_string());
    }
    let codes = NUMBERS[0].split_once("\ncodes! {").unwrap().1.split_once("\n}").unwrap().0;
    for line in codes.lines().filter_map(|line| line.trim().strip_prefix("WEFT_")) {
        let (name, rest) = line.split_once(" = ").unwrap();
        let (value, _text) = rest.split_once(',').unwrap();
        numbers.insert(format!("WEFT_{name}"), value.to_string());
    }
    assert!(numbers.len() > 15);
    let mut defined = BTreeMap::new();
    for line in code(HEADER).lines().filter_map(|l| l.strip_prefix("#define ")) {
        if let Some((name, value)) = line.trim().split_once(' ') {
            defined.insert(name.to_string(), value.trim().to_string());
        }
    }
    assert_eq!(defined, numbers);
}
