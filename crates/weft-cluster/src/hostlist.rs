//! Lists of hosts as Slurm writes them: `n[1-3,7],login` (hostlist expressions, scontrol(1)).

/// Most hosts of a list, so that a typing error does not take all memory.
pub const MOST: usize = 1 << 16;

/// Returns the names in a hostlist expression, in its order.
///
/// # Errors
/// The text is none; the reason.
pub fn expand(list: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for word in split(list)? {
        for name in word_of(word)? {
            // A name that starts with a dash would be an option.
            if name.is_empty() || name.starts_with('-') {
                return Err(format!("{name:?} is not a host name"));
            }
            if names.len() >= MOST {
                return Err(format!("more than {MOST} hosts"));
            }
            names.push(name);
        }
    }
    match names.is_empty() {
        true => Err("it names no host".into()),
        false => Ok(names),
    }
}

/// Splits at the commas outside brackets.
///
/// # Errors
/// Brackets do not match.
pub fn split(list: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut start, mut inside) = (Vec::new(), 0, false);
    let unmatched = || "brackets do not match".to_string();
    for (at, c) in list.char_indices() {
        match c {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return Err(unmatched()),
            ',' if !inside => {
                words.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(unmatched());
    }
    words.push(&list[start..]);
    Ok(words)
}

/// Expands one word: the text before its first brackets, then each number in them, then each
/// expansion of the rest.
fn word_of(word: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = word.split_once('[') else { return Ok(vec![word.to_owned()]) };
    let (ranges, after) = rest.split_once(']').ok_or("brackets do not match")?;
    let after = word_of(after)?;
    let mut names = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            let number = text.parse::<u32>().ok().filter(|_| digits);
            number.ok_or_else(|| format!("{text:?} in {word} is no number"))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(format!("{range} in {word} runs backwards"));
        }
        for number in from..=to {
            let width = first.len();
            names.extend(after.iter().map(|end| format!("{before}{number:0width$}{end}")));
            if names.len() > MOST {
                return Err(format!("more than {MOST} hosts"));
            }
        }
    }
    Ok(names)
}
