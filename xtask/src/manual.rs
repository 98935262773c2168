//! Generated manual pages: of the C functions from the comments of their headers, of the agent from
//! its own help.

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
}

/// The interface of weft itself.
pub const WEFT: Header = Header {
    path: "faces/capi/include/weft.h",
    name: "weft.h",
    prefix: "weft_",
    about: "message passing over plain Ethernet and shared memory",
};

/// The Virtual Interface Architecture.
pub const VIPL: Header = Header {
    path: "faces/via/include/vipl.h",
    name: "vipl.h",
    prefix: "Vip",
    about: "the Virtual Interface Architecture over weft",
};

/// Myrinet Express.
pub const MX: Header = Header {
    path: "faces/mx/include/myriexpress.h",
    name: "myriexpress.h",
    prefix: "mx_",
    about: "Myrinet Express (MX) over weft",
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

/// Makes pages of section 3 for the functions of a header, and one of section 7 for the header, by
/// the names of their files.
pub fn of_header(of: &Header, header: &str) -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut all: Vec<&str> = Vec::new();
    let mut before = None;
    for entry in entries(of.prefix, header) {
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
            ("SEE ALSO", above + &rules),
        ];
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

/// Makes the page of the agent from the output of `weftd --help`.
pub fn of_agent(help: &str) -> String {
    let (about, rest) = help.split_once("usage:").unwrap_or(("", help));
    let (usage, rest) = rest.split_once('\n').unwrap_or((rest, ""));
    let (options, after) = rest.trim_start_matches('\n').split_once("\n\n").unwrap_or((rest, ""));
    let parts = [
        ("SYNOPSIS", verbatim(usage.trim())),
        ("DESCRIPTION", roff(about.trim_start_matches("weftd:").trim())),
        ("OPTIONS", verbatim(options)),
        ("RIGHTS", roff(after)),
        ("SEE ALSO", "weft\\-run(1)\n".into()),
    ];
    page("weftd", 8, "weftd - the agent of a host for weft's ranks", &parts)
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
                }
            }
        }
    }

    #[test]
    fn of_agent__keeps_the_lines_of_options() {
        let text =
            of_agent("weftd: the agent.\n\nusage: weftd [options]\n\n  --seats N  ranks\n\nIt.");
        assert!(text.contains(".SH OPTIONS\n.nf\n  \\-\\-seats N  ranks\n.fi\n"), "{text}");
        assert!(text.contains(".SH RIGHTS\nIt.\n"), "{text}");
    }
}
