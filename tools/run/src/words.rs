//! Words of command lines: quoted for a POSIX shell, and split as it splits them.

use std::borrow::Cow;

/// Quotes a word if a shell would read it as another one.
pub fn quote(word: &str) -> Cow<'_, str> {
    // Only a NUL is refused otherwise, and no argument of a process has one.
    shlex::Quoter::new().allow_nul(true).quote(word).unwrap_or(Cow::Borrowed(word))
}

/// Returns a line that a shell reads as these words.
pub fn join<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Returns the arguments of this process, as people may repeat them.
pub fn own() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    join(words.iter().map(String::as_str))
}

/// Returns the words of a line; `None` if a quote is not closed or a word ends in a backslash.
pub fn split(line: &str) -> Option<Vec<String>> {
    shlex::split(line)
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]
    use super::*;
    use std::process::Command;

    const ODD: [&str; 9] = [
        "/plain/path",
        "",
        "with space",
        "it's",
        "$HOME `x` \\ \" !",
        "a;b&c|d",
        "^a=1%,{2}",
        "ä\nb",
        "#~*?[x]",
    ];

    #[test]
    fn join__a_shell_and_split_read_what_was_meant() {
        let line = join(ODD);
        let script = format!("printf '%s\\0' {line}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let read = String::from_utf8(output.stdout).unwrap();
        assert_eq!(read.split_terminator('\0').collect::<Vec<_>>(), ODD);
        assert_eq!(split(&line).unwrap(), ODD);
    }

    #[test]
    fn quote__plain_words_stay_as_they_are() {
        for word in ["weft", "--map-by", "/usr/bin/weft", "h1:2"] {
            assert_eq!(quote(word), word);
        }
        assert_eq!(quote("a'$(b)"), "\"a'\"'$(b)'");
    }

    #[test]
    fn split__what_no_shell_reads_is_refused() {
        assert_eq!(split("--a 'b").or(split("c\\")), None);
        assert_eq!(split(" --a  'b c' ").unwrap(), ["--a", "b c"]);
    }
}
