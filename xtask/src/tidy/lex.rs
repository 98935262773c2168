//! Rust source as a flat list of tokens with line numbers, so that comments and strings mislead no
//! rule.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::ops::RangeInclusive;

/// The type of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Identifier or keyword.
    Ident(String),
    /// One punctuation character.
    Punct(char),
    /// Literal, as written.
    Literal(String),
    /// Opening bracket, and the index of its partner.
    Open(char, usize),
    /// Closing bracket.
    Close(char),
}

/// A token and the line it starts on (from 1).
#[derive(Clone, Debug)]
pub struct Token {
    /// Its type.
    pub kind: Kind,
    /// Line, from 1.
    pub line: usize,
}

impl Token {
    /// Returns true if the token is this identifier.
    pub fn is(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Ident(w) if w == word)
    }

    /// Returns true if the token is this punctuation character.
    pub fn is_punct(&self, c: char) -> bool {
        self.kind == Kind::Punct(c)
    }

    /// Returns the identifier, if it is one.
    pub fn ident(&self) -> Option<&str> {
        match &self.kind {
            Kind::Ident(w) => Some(w),
            _ => None,
        }
    }

    /// Returns the index of the closing partner, if the token opens this type of bracket.
    pub fn opens(&self, bracket: char) -> Option<usize> {
        match self.kind {
            Kind::Open(c, mate) if c == bracket => Some(mate),
            _ => None,
        }
    }
}

/// Splits source text; the error names the line that cannot be read.
pub fn lex(text: &str) -> Result<Vec<Token>, usize> {
    let stream: TokenStream =
        text.parse().map_err(|e: proc_macro2::LexError| e.span().start().line)?;
    let mut out = Vec::new();
    flatten(stream, &mut out);
    Ok(out)
}

fn flatten(stream: TokenStream, out: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        match tree {
            TokenTree::Ident(i) => out.push(Token { kind: Kind::Ident(i.to_string()), line }),
            TokenTree::Punct(p) => out.push(Token { kind: Kind::Punct(p.as_char()), line }),
            TokenTree::Literal(l) => out.push(Token { kind: Kind::Literal(l.to_string()), line }),
            TokenTree::Group(g) => {
                let bracket = match g.delimiter() {
                    Delimiter::Brace => '{',
                    Delimiter::Bracket => '[',
                    Delimiter::Parenthesis | Delimiter::None => '(',
                };
                let open = out.len();
                out.push(Token { kind: Kind::Open(bracket, 0), line });
                flatten(g.stream(), out);
                let mate = out.len();
                out[open].kind = Kind::Open(bracket, mate);
                out.push(Token { kind: Kind::Close(bracket), line: g.span_close().start().line });
            }
        }
    }
}

/// A function: its name, and the lines from `fn` to the closing brace.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its lines.
    pub lines: RangeInclusive<usize>,
}

/// Returns every function with a body.
pub fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut found = Vec::new();
    for (i, pair) in tokens.windows(2).enumerate() {
        let (true, Some(name)) = (pair[0].is("fn"), pair[1].ident()) else { continue };
        if let Some(end) = body_end(tokens, i + 2) {
            let lines = pair[0].line..=tokens[end].line;
            found.push(Function { name: name.to_string(), lines });
        }
    }
    found
}

/// Returns the index of the closing brace of the item that continues at `from`; `None` if `;` ends
/// it first.
fn body_end(tokens: &[Token], from: usize) -> Option<usize> {
    let mut i = from;
    while i < tokens.len() {
        match tokens[i].kind {
            Kind::Punct(';') | Kind::Close(_) => return None,
            Kind::Open('{', mate) => return Some(mate),
            Kind::Open(_, mate) => i = mate + 1,
            _ => i += 1,
        }
    }
    None
}

/// Returns token ranges of items compiled for tests only: `#[cfg(test)]` and its item.
pub fn test_items(tokens: &[Token]) -> Vec<RangeInclusive<usize>> {
    let mut found: Vec<RangeInclusive<usize>> = Vec::new();
    for i in 0..tokens.len().saturating_sub(1) {
        if !tokens[i].is_punct('#') || found.last().is_some_and(|r| r.contains(&i)) {
            continue;
        }
        let Some(close) = tokens[i + 1].opens('[') else { continue };
        let inside = &tokens[i + 2..close];
        if inside.first().is_some_and(|t| t.is("cfg")) && requires_test(tokens, i + 2, close) {
            found.push(i..=item_end(tokens, close + 1));
        }
    }
    found
}

/// Returns true if the condition between the two indices is true in test builds alone: `test`
/// outside `not` and `any`.
fn requires_test(tokens: &[Token], from: usize, to: usize) -> bool {
    let mut i = from;
    while i < to {
        if tokens[i].is("test") {
            return true;
        }
        let weak = tokens[i].is("not") || tokens[i].is("any");
        i = tokens[i + 1].opens('(').filter(|_| weak).unwrap_or(i) + 1;
    }
    false
}

/// Returns the index of the last token of the item at `from`, attributes included.
fn item_end(tokens: &[Token], from: usize) -> usize {
    let mut i = from;
    while i < tokens.len() {
        match tokens[i].kind {
            Kind::Punct(';') => return i,
            Kind::Open('{', mate) => return mate,
            Kind::Open(_, mate) => i = mate + 1,
            _ => i += 1,
        }
    }
    tokens.len().saturating_sub(1)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn functions__ignore_comments_strings_and_declarations() {
        let text = "// fn no() {}\nconst S: &str = \"fn no() {}\";\ntrait T { fn decl(&self); }\n\
                    fn yes<const N: usize>(a: [u8; N]) -> fn(u8)\nwhere u8: Copy {\n  g()\n}\n";
        let found = functions(&lex(text).unwrap());
        assert_eq!(found, [Function { name: "yes".into(), lines: 4..=7 }]);
    }

    #[test]
    fn functions__nested_ones_are_found_too() {
        let names: Vec<_> = functions(&lex("impl A { fn a() { fn b() {} } }").unwrap())
            .into_iter()
            .map(|f| f.name)
            .collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn test_items__cover_the_module_and_not_what_follows() {
        let tokens = lex("#[cfg(test)]\n#[allow(x)]\nmod tests { fn a() {} }\nfn b() {}").unwrap();
        let items = test_items(&tokens);
        assert_eq!(items.len(), 1);
        let b = tokens.iter().position(|t| t.is("b")).unwrap();
        let a = tokens.iter().position(|t| t.is("a")).unwrap();
        assert!(items[0].contains(&a) && !items[0].contains(&b));
    }

    #[test]
    fn test_items__leave_out_cfg_not_test() {
        let items = |text: &str| test_items(&lex(text).unwrap()).len();
        assert_eq!(items("#[cfg(not(test))] mod real { }"), 0);
        assert_eq!(items("#[cfg(any(test, unix))] mod real { }"), 0);
        assert_eq!(items("#[cfg(all(not(loom), test))] mod tests { }"), 1);
    }

    #[test]
    fn lex__names_the_line_it_cannot_read() {
        assert_eq!(lex("fn a() {}\nfn b() {}\n}").unwrap_err(), 3);
    }
}
