//! Generated manual pages: of the C functions, from the comments of their headers.

mod parameters;

use parameters::Meanings;
use std::collections::BTreeMap;
use std::fmt::Write;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A header of the C interfaces.
pub struct Header {
    /// Its path in the repository.
    pub path: &'static str,
    /// Its name in programs.
    name: &'static str,
    /// The start of the names of its functions.
    prefix: &'static str,
    about: &'static str,
    /// The start of the names of its codes, and codes that every function may return.
    codes: (&'static str, &'static [&'static str]),
    parameters: Meanings,
    /// The sentences about results of all functions.
    success: &'static str,
}

/// The interface of weft itself.
pub const WEFT: Header = Header {
    path: "faces/capi/include/weft.h",
    name: "weft.h",
    prefix: "weft_",
    about: "message passing over plain Ethernet and shared memory",
    codes: ("WEFT_", &["WEFT_ARGUMENT", "WEFT_SIGNAL", "WEFT_PANIC"]),
    parameters: parameters::WEFT,
    success:
        "\nFunctions of type int return WEFT_OK, or the number that is described, on success, \
              and a negative code otherwise; weft_last_error(3) has the details.",
};

/// The Virtual Interface Architecture.
pub const VIPL: Header = Header {
    path: "faces/via/include/vipl.h",
    name: "vipl.h",
    prefix: "Vip",
    about: "the Virtual Interface Architecture over weft",
    codes: ("VIP_", &["VIP_INVALID_PARAMETER", "VIP_ERROR_RESOURCE"]),
    parameters: parameters::VIPL,
    success: "\nFunctions of type VIP_RETURN return VIP_SUCCESS, or a code of an error.",
};

/// Myrinet Express.
pub const MX: Header = Header {
    path: "faces/mx/include/myriexpress.h",
    name: "myriexpress.h",
    prefix: "mx_",
    about: "Myrinet Express (MX) over weft",
    codes: ("MX_", &["MX_NOT_INITIALIZED"]),
    parameters: parameters::MX,
    success: "\nFunctions of type mx_return_t return MX_SUCCESS, or a code, which mx_strerror(3) \
              puts into words, unless the handler of errors ends the program.",
};

/// Functions of a header that one comment describes.
struct Entry<'a> {
    comment: String,
    prototypes: &'a str,
    names: Vec<&'a str>,
}

/// Returns a comment's text, without its marks.
fn text_of(comment: &str) -> String {
    let lines = comment.lines().map(|line| line.trim().trim_start_matches('*').trim());
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Returns the names of the declared functions.
fn names_of<'a>(prefix: &str, prototypes: &'a str) -> Vec<&'a str> {
    let of = |part: &'_ str| -> Option<usize> {
        part.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(|at| at + 1)
    };
    let heads = prototypes.split(';').filter_map(|declaration| declaration.split_once('('));
    heads
        .filter_map(|(head, _)| of(head).map(|at| &head[at..]))
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Returns the described functions of a header, in its order.
fn entries<'a>(prefix: &str, header: &'a str) -> Vec<Entry<'a>> {
    let comments = header.split("/*").skip(1).filter_map(|part| part.split_once("*/"));
    comments
        .filter_map(|(comment, code)| {
            let prototypes = code.split("\n#").next().unwrap_or(code).trim();
            let declares = !prototypes.starts_with("typedef") && prototypes.contains('(');
            let names = if declares { names_of(prefix, prototypes) } else { Vec::new() };
            (!names.is_empty()).then(|| Entry { comment: text_of(comment), prototypes, names })
        })
        .collect()
}

/// Returns the comments of a header that describe a kind of functions, before those, as heading and
/// text: `Heading: text`.
fn sections(header: &str) -> Vec<(String, String)> {
    let comments = header.split("/*").skip(1).filter_map(|part| part.split_once("*/"));
    // The first describes the header.
    let alone = comments.skip(1).filter(|(_, code)| code.trim().is_empty());
    let titled = alone.filter_map(|(comment, _)| {
        let text = text_of(comment);
        let (heading, rest) = text.split_once(':')?;
        let mut rest = rest.trim_start().chars();
        let first = rest.next()?.to_uppercase();
        Some((heading.to_uppercase(), roff(&format!("{first}{}", rest.as_str()))))
    });
    titled.collect()
}

/// Returns the described types of a header, each with its comment.
fn types(header: &str) -> String {
    // Comments of constants stand behind these.
    let comments = header.split("\n/*").skip(1).filter_map(|part| part.split_once("*/"));
    let described = comments.filter_map(|(comment, code)| {
        let code = code.trim();
        let end = match code.find('{') {
            Some(open) if code[..open].find(';').is_none() => code.find("};").or(code.find("} "))?,
            _ => 0,
        };
        let end = end + code[end..].find(';')? + 1;
        let declared = code.starts_with("typedef").then(|| &code[..end])?;
        Some(format!("{}\n.P\n{}.P\n", roff(&text_of(comment)).trim_end(), verbatim(declared)))
    });
    described.collect()
}

/// Returns the names of a header's constants, their values and meanings, in columns.
fn codes(header: &str) -> String {
    let line = |line: &str| {
        let (code, what) = line.strip_prefix("#define ")?.split_once("/*")?;
        let (name, value) = code.trim().split_once(' ')?;
        let what = what.trim().trim_end_matches("*/").trim();
        Some(format!("{name:<22} {:>3}  {what}\n", value.trim()))
    };
    header.lines().filter_map(line).collect()
}

/// Encodes text for roff.
fn roff(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(out, "{guard}{line}");
    }
    out
}

fn page(name: &str, section: u8, about: &str, parts: &[(&str, String)]) -> String {
    let title = name.to_uppercase();
    let mut out = format!(".TH {title} {section} \"\" \"weft {VERSION}\"\n.SH NAME\n");
    out += &roff(about);
    for (heading, body) in parts {
        let _ = write!(out, ".SH {heading}\n{body}");
    }
    out
}

/// Encodes a part whose lines stay unchanged.
fn verbatim(text: &str) -> String {
    format!(".nf\n{}.fi\n", roff(text))
}

/// Returns the first sentence, without its full stop.
fn first_sentence(comment: &str) -> String {
    let flat = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = flat.find(". ").or(flat.find(": ")).unwrap_or(flat.len());
    flat[..end].trim_end_matches('.').to_owned()
}

/// Returns the parameters of functions with their meanings, each once.
fn parameters_of(of: &Header, prototypes: &str) -> String {
    let mut lines: Vec<(String, &str)> = Vec::new();
    for prototype in prototypes.split(';') {
        let Some(function) = names_of(of.prefix, prototype).pop() else { continue };
        for parameter in parameters::of_prototype(prototype) {
            let Some(what) = parameters::meaning(of, function, &parameter) else { continue };
            if !lines.contains(&(parameter.name.clone(), what)) {
                lines.push((parameter.name, what));
            }
        }
    }
    let line = |(name, what): &(String, &str)| format!(".TP\n.I {name}\n{}", roff(what));
    lines.iter().map(line).collect()
}

/// Returns the sentences of a comment that say what functions return.
fn results_of(comment: &str) -> String {
    let flat = comment.split_whitespace().collect::<Vec<_>>().join(" ");
    let sentences = flat.split_inclusive(". ").map(str::trim);
    let told = |one: &&str| one.contains("eturn") || one.contains("tores ");
    sentences.filter(told).collect::<Vec<_>>().join(" ")
}

/// The functions of `weft.h` that wait, beside those whose comments say so: an upcall gets
/// `WEFT_UPCALL` from them.
const WAITING: &[&str] = &[
    "weft_finish",
    "weft_wait",
    "weft_barrier",
    "weft_flush",
    "weft_receive",
    "weft_msg_send",
    "weft_msg_recv",
    "weft_msg_take",
    "weft_wait_any",
    "weft_wait_all",
    "weft_set_wait",
    "weft_fetch_add",
    "weft_rcpy",
    "weft_connect_name",
    "weft_comm_barrier",
    "weft_comm_broadcast",
    "weft_comm_reduce",
    "weft_comm_allreduce",
    "weft_comm_reduce_scatter",
    "weft_comm_gather",
    "weft_comm_allgather",
    "weft_comm_scatter",
    "weft_comm_alltoall",
];

/// Returns the codes of errors of functions of `weft.h`, beside those that their comment names.
fn usual_errors(names: &[&str], prototypes: &str) -> Vec<&'static str> {
    let mut codes = Vec::new();
    let has = |what: &str| prototypes.contains(what);
    let agent = ["weft_names *", "weft_names **", "weft_member *", "weft_names_watch *"];
    if agent.into_iter().any(has) {
        codes.extend(["WEFT_NO_AGENT", "WEFT_REFUSED", "WEFT_THREAD"]);
    } else if names.iter().any(|name| !["weft_init", "weft_strerror"].contains(name)) {
        codes.push("WEFT_THREAD");
    }
    let others =
        ["int rank,", "int rank)", "int root", "weft_group *", "weft_comm *", "weft_request *"];
    if others.into_iter().any(has) {
        codes.push("WEFT_PEER");
    }
    if names.iter().any(|name| WAITING.contains(name)) {
        codes.extend(["WEFT_UPCALL", "WEFT_PEER"]);
    }
    codes
}

/// Returns the meaning of each code that a header defines with a comment.
fn meanings(header: &str) -> BTreeMap<&str, String> {
    let line = |line: &'_ str| -> Option<(usize, usize)> {
        let rest = line.strip_prefix("#define ")?;
        let end = rest.find(' ')?;
        rest.contains("/*").then_some((8, 8 + end))
    };
    let of = |text| line(text).map(|(from, to)| (&text[from..to], text));
    let what = |text: &str| {
        let comment = text.split_once("/*").map_or("", |(_, rest)| rest);
        comment.trim().trim_end_matches("*/").trim().to_string()
    };
    header.lines().filter_map(of).map(|(name, text)| (name, what(text))).collect()
}

/// Returns the codes of errors of functions, with their meanings where the header has them.
fn errors_of(of: &Header, entry: &Entry<'_>, header: &str) -> String {
    let is_code = |word: &&str| {
        word.starts_with(of.codes.0) && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let words = entry.comment.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let known = meanings(header);
    // weft.h defines errors as negative numbers; a comment names other constants as well.
    let is_error =
        |word: &&str| of.prefix != WEFT.prefix || header.contains(&format!("#define {word} -"));
    let mut codes: Vec<&str> = words.filter(is_code).filter(is_error).collect();
    if of.prefix == WEFT.prefix {
        codes.retain(|code| !["WEFT_ANY", "WEFT_TREE_DEFAULT"].contains(code));
        codes.extend(usual_errors(&entry.names, entry.prototypes));
    }
    codes.extend(of.codes.1);
    let mut seen: Vec<&str> = Vec::new();
    codes.retain(|code| {
        let is_new = !seen.contains(code);
        seen.push(code);
        is_new
    });
    let line = |code: &&str| {
        let what = known.get(code).map_or("see DESCRIPTION", String::as_str);
        format!(".TP\n.B {code}\n{}", roff(what))
    };
    codes.iter().map(line).collect()
}

/// Makes pages of section 3 for the functions of a header, and one of section 7 for the header, by
/// the names of their files.
pub fn of_header(of: &Header, header: &str) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut all: Vec<&str> = Vec::new();
    let mut before = None;
    for entry in entries(of.prefix, header) {
        // A function that returns text or an address has no code to return.
        let has_code = ["int ", "VIP_RETURN ", "mx_return_t "];
        let has_code = has_code.iter().any(|kind| entry.prototypes.contains(kind));
        let errors = if has_code { errors_of(of, &entry, header) } else { String::new() };
        let Entry { comment, prototypes, names } = entry;
        let about = format!("{} - {}", names.join(", "), first_sentence(&comment));
        let synopsis = format!("#include <{}>\n\n{prototypes}\n", of.name);
        let (first, others) = (names[0], &names[1..]);
        // A comment may compare its functions with those above.
        let above = before.replace(first).map_or(String::new(), |name| format!("{name}(3);\n"));
        let rules = format!("{}(7) has the codes of functions, and their rules.\n", of.name);
        let parts = [
            ("SYNOPSIS", verbatim(&synopsis)),
            ("DESCRIPTION", roff(&comment)),
            ("PARAMETERS", parameters_of(of, prototypes)),
            ("RETURN VALUE", roff(&(results_of(&comment) + of.success))),
            ("ERRORS", errors),
            ("SEE ALSO", above + &rules),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.1.trim().is_empty()).collect();
        pages.insert(format!("man3/{first}.3"), page(first, 3, &about, &parts));
        for name in others {
            pages.insert(format!("man3/{name}.3"), format!(".so man3/{first}.3\n"));
        }
        all.extend(names);
    }
    let preface = header.split("*/").next().unwrap_or_default().trim_start_matches("/*");
    let functions = all.iter().map(|name| format!("{name}(3)\n")).collect::<String>();
    let sections = sections(header);
    let mut parts = vec![("DESCRIPTION", roff(&text_of(preface)))];
    parts.extend(sections.iter().map(|(heading, text)| (heading.as_str(), text.clone())));
    parts.push(("TYPES", types(header)));
    let codes = codes(header);
    if !codes.is_empty() {
        parts.push(("CODES", verbatim(&codes)));
    }
    parts.push(("FUNCTIONS", verbatim(&functions)));
    let about = format!("{} - {}", of.name, of.about);
    pages.insert(format!("man7/{}.7", of.name), page(of.name, 7, &about, &parts));
    pages
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const HEADER: &str = "/* weft: messages.\n *\n * Rules.\n */\n\
        #define WEFT_OK 0 /* it worked */\n\
        typedef struct weft_job weft_job;\n\n/* An upcall. */\n\
        typedef void (*weft_upcall)(int a);\n\n\
        /* A message. */\ntypedef struct m {\n    int a;\n} m;\n\n\
        /* Sends a packet. The second never waits:\n * see weft_poll. */\n\
        int weft_send(weft_job *job,\n              int rank);\n\
        int weft_try_send(weft_job *job);\n\n\
        /* Names: of all\n * kinds. */\n\n/* A name. */\nconst char *weft_name(void);\n\n\
        #ifdef __cplusplus\n}\n#endif\n";

    #[test]
    fn of_header__a_page_for_each_function() {
        let pages = of_header(&WEFT, HEADER);
        let names: Vec<&str> = pages.keys().map(String::as_str).collect();
        let wanted =
            ["man3/weft_name.3", "man3/weft_send.3", "man3/weft_try_send.3", "man7/weft.h.7"];
        assert_eq!(names, wanted);
        let send = &pages["man3/weft_send.3"];
        assert!(send.contains("weft_send, weft_try_send \\- Sends a packet\n"), "{send}");
        assert!(send.contains("int weft_send(weft_job *job,\n              int rank);"), "{send}");
        let sections =
            ["PARAMETERS\n.TP\n.I job\nthe job\n.TP\n.I rank\n", "RETURN VALUE\n", "ERRORS\n"];
        for section in sections {
            assert!(send.contains(&format!(".SH {section}")), "{section}: {send}");
        }
        assert!(send.contains(".B WEFT_PEER\n") && !send.contains(".B WEFT_NO_AGENT"), "{send}");
        assert_eq!(pages["man3/weft_try_send.3"], ".so man3/weft_send.3\n");
        let all = &pages["man7/weft.h.7"];
        assert!(all.contains(&format!("{:<24} 0  it worked\n", "WEFT_OK")), "{all}");
        assert!(all.contains(".SH NAMES\nOf all\nkinds.\n.SH TYPES\n"), "{all}");
        let upcall = "An upcall.\n.P\n.nf\ntypedef void (*weft_upcall)(int a);\n.fi\n.P\n";
        assert!(all.contains(upcall) && !all.contains("weft_job weft_job"), "{all}");
        let message = "A message.\n.P\n.nf\ntypedef struct m {\n    int a;\n} m;\n.fi\n";
        assert!(all.contains(message), "{all}");
        assert!(pages["man3/weft_name.3"].contains(".SH SEE ALSO\nweft_send(3);\n"));
    }

    /// Each parameter of a function has a meaning.
    fn has_all_meanings(of: &Header, header: &str, name: &str) {
        let from = header.find(&format!("{name}(")).unwrap();
        let prototype = header[from..].split(';').next().unwrap();
        for parameter in parameters::of_prototype(prototype) {
            let what = parameters::meaning(of, name, &parameter);
            assert!(what.is_some(), "{name}: {} has no meaning", parameter.declared);
        }
    }

    #[test]
    fn of_header__the_library_s_own_functions_all_have_one() {
        for of in [&WEFT, &VIPL, &MX] {
            let header = std::fs::read_to_string(crate::root().join(of.path)).unwrap();
            let pages = of_header(of, &header);
            for line in header.lines().filter(|line| !line.starts_with([' ', '/', '*', '#'])) {
                for name in names_of(of.prefix, line) {
                    if line.starts_with("typedef") {
                        continue;
                    }
                    assert!(pages.contains_key(&format!("man3/{name}.3")), "no page for {name}");
                    has_all_meanings(of, &header, name);
                }
            }
        }
    }
}
