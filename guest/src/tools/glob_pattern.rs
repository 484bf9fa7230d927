//! Glob patterns, as `.gitignore` files and callers write them.
//!
//! `*` and `?` stay within a name, `**` as a whole part crosses them, `[a-z]` and `[!a-z]` are classes,
//! `{a,b}` are alternatives, a backslash takes the next byte as it is. Matching needs no recursion, and its
//! time is bounded by the product of the lengths of a part and a name.

const MOST_ALTERNATIVES: usize = 256;
const LONGEST: usize = 4096;

/// A pattern for paths whose parts are separated by `/`.
#[derive(Debug)]
pub struct GlobPattern {
    alternatives: Vec<Vec<Part>>,
}

#[derive(Debug)]
enum Part {
    /// `**`: any number of names.
    Names,
    /// One name that is exactly this.
    Exactly(Vec<u8>),
    Name(Vec<Token>),
}

#[derive(Debug)]
enum Token {
    Byte(u8),
    /// One character.
    One,
    /// Any number of characters.
    Any,
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
}

impl GlobPattern {
    /// With alternatives in braces. `None` if it is too long or has too many of them.
    pub fn new(pattern: &[u8]) -> Option<GlobPattern> {
        if pattern.len() > LONGEST {
            return None;
        }
        let alternatives = expand(pattern)?;
        Some(GlobPattern { alternatives: alternatives.iter().map(|one| parts(one)).collect() })
    }

    /// As `.gitignore` files have them: braces mean themselves.
    pub fn plain(pattern: &[u8]) -> Option<GlobPattern> {
        (pattern.len() <= LONGEST).then(|| GlobPattern { alternatives: vec![parts(pattern)] })
    }

    /// Whether the whole of `path`, which does not begin with `/`, is matched.
    pub fn matches(&self, path: &[u8]) -> bool {
        self.alternatives.iter().any(|parts| matches_path(parts, path))
    }

    /// Whether it has more than one part, and so is about a path and not about a name.
    pub fn has_separator(&self) -> bool {
        self.alternatives.iter().any(|parts| parts.len() > 1)
    }
}

fn matches_path(parts: &[Part], path: &[u8]) -> bool {
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let (mut part, mut name) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    loop {
        match parts.get(part) {
            Some(Part::Names) => {
                again = Some((part + 1, name));
                part += 1;
                continue;
            }
            Some(one) if name < names.len() && matches_name(one, names[name]) => {
                part += 1;
                name += 1;
                continue;
            }
            None if name == names.len() => return true,
            _ => {}
        }
        // The last `**` takes one name more.
        match again {
            Some((after, start)) if start < names.len() => {
                again = Some((after, start + 1));
                part = after;
                name = start + 1;
            }
            _ => return false,
        }
    }
}

fn matches_name(part: &Part, name: &[u8]) -> bool {
    let tokens = match part {
        Part::Names => return true,
        Part::Exactly(exactly) => return exactly == name,
        Part::Name(tokens) => tokens,
    };
    let (mut token, mut at) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    loop {
        let step = match tokens.get(token) {
            Some(Token::Any) => {
                again = Some((token + 1, at));
                token += 1;
                continue;
            }
            Some(one) => match_one(one, &name[at..]),
            None if at == name.len() => return true,
            None => None,
        };
        if let Some(length) = step {
            token += 1;
            at += length;
            continue;
        }
        match again {
            Some((after, start)) if start < name.len() => {
                let next = start + character(&name[start..]);
                again = Some((after, next));
                token = after;
                at = next;
            }
            _ => return false,
        }
    }
}

/// How many bytes one token takes.
fn match_one(token: &Token, name: &[u8]) -> Option<usize> {
    let first = *name.first()?;
    match token {
        Token::Byte(byte) => (first == *byte).then_some(1),
        Token::One => Some(character(name)),
        Token::Class { negated, ranges } => {
            let inside = ranges.iter().any(|(low, high)| (*low..=*high).contains(&first));
            (inside != *negated).then(|| if *negated { character(name) } else { 1 })
        }
        Token::Any => None,
    }
}

/// The length of the first character; of bytes that are none, 1.
fn character(bytes: &[u8]) -> usize {
    let length = match bytes.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    match bytes.get(..length) {
        Some(whole) if std::str::from_utf8(whole).is_ok() => length,
        _ => 1,
    }
}

fn parts(pattern: &[u8]) -> Vec<Part> {
    let mut parts = Vec::new();
    for piece in split(pattern) {
        if piece == b"**" {
            // Several in a row are as one.
            if !matches!(parts.last(), Some(Part::Names)) {
                parts.push(Part::Names);
            }
            continue;
        }
        let tokens = tokens(piece);
        let exactly: Option<Vec<u8>> = tokens
            .iter()
            .map(|token| match token {
                Token::Byte(byte) => Some(*byte),
                _ => None,
            })
            .collect();
        parts.push(exactly.map_or_else(|| Part::Name(tokens), Part::Exactly));
    }
    parts
}

/// At every `/` that is neither in a class nor behind a backslash.
fn split(pattern: &[u8]) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < pattern.len() {
        match pattern[at] {
            b'\\' => at += 1,
            b'[' => at += class_length(&pattern[at..]).map_or(0, |length| length - 1),
            b'/' => {
                pieces.push(&pattern[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    pieces.push(&pattern[start.min(pattern.len())..]);
    pieces
}

/// The length of a class that `bytes` begin with; a bracket that is never closed is no class.
fn class_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    if matches!(bytes.get(at), Some(b'!' | b'^')) {
        at += 1;
    }
    // A closing bracket in the first place is part of the class.
    if bytes.get(at) == Some(&b']') {
        at += 1;
    }
    loop {
        match bytes.get(at)? {
            b']' => return Some(at + 1),
            b'/' => return None,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn tokens(piece: &[u8]) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < piece.len() {
        match piece[at] {
            b'\\' if at + 1 < piece.len() => {
                at += 1;
                tokens.push(Token::Byte(piece[at]));
            }
            b'*' => {
                if !matches!(tokens.last(), Some(Token::Any)) {
                    tokens.push(Token::Any);
                }
            }
            b'?' => tokens.push(Token::One),
            b'[' => match class_length(&piece[at..]) {
                Some(length) => {
                    tokens.push(class(&piece[at + 1..at + length - 1]));
                    at += length - 1;
                }
                None => tokens.push(Token::Byte(b'[')),
            },
            byte => tokens.push(Token::Byte(byte)),
        }
        at += 1;
    }
    tokens
}

fn class(mut inner: &[u8]) -> Token {
    let negated = matches!(inner.first(), Some(b'!' | b'^'));
    if negated {
        inner = &inner[1..];
    }
    let mut ranges = Vec::new();
    let mut at = 0;
    let take = |at: &mut usize| {
        if inner[*at] == b'\\' && *at + 1 < inner.len() {
            *at += 1;
        }
        *at += 1;
        inner[*at - 1]
    };
    while at < inner.len() {
        let low = take(&mut at);
        let high = if inner.get(at) == Some(&b'-') && at + 1 < inner.len() {
            at += 1;
            take(&mut at)
        } else {
            low
        };
        ranges.push((low, high));
    }
    Token::Class { negated, ranges }
}

/// One pattern for every choice of alternatives in braces, nested ones too.
fn expand(pattern: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_vec()];
    while let Some(one) = open.pop() {
        match first_braces(&one) {
            None => done.push(one),
            Some((start, end, choices)) => {
                for choice in choices.iter().rev() {
                    let mut whole = one[..start].to_vec();
                    whole.extend_from_slice(choice);
                    whole.extend_from_slice(&one[end..]);
                    open.push(whole);
                }
            }
        }
        if done.len() + open.len() > MOST_ALTERNATIVES {
            return None;
        }
    }
    Some(done)
}

/// Where the first braces begin and end, and what is between their commas.
fn first_braces(pattern: &[u8]) -> Option<(usize, usize, Vec<Vec<u8>>)> {
    let mut at = 0;
    let mut found: Option<(usize, usize, Vec<Vec<u8>>)> = None;
    let mut depth = 0;
    while at < pattern.len() {
        match pattern[at] {
            b'\\' => at += 1,
            b'[' if depth == 0 => at += class_length(&pattern[at..]).map_or(0, |length| length - 1),
            b'{' => {
                depth += 1;
                if depth == 1 {
                    found = Some((at, at + 1, Vec::new()));
                }
            }
            b',' | b'}' if depth == 1 => {
                let (_, from, choices) = found.as_mut()?;
                choices.push(pattern[*from..at].to_vec());
                *from = at + 1;
                if pattern[at] == b'}' {
                    let (start, end, choices) = found?;
                    return Some((start, end, choices));
                }
            }
            b'}' if depth > 1 => depth -= 1,
            _ => {}
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        GlobPattern::new(pattern.as_bytes()).expect("a pattern").matches(path.as_bytes())
    }

    #[test]
    fn stars_stay_within_names_and_double_stars_cross_them() {
        for (pattern, path, expected) in [
            ("*.rs", "a.rs", true),
            ("*.rs", "a/b.rs", false),
            ("**/*.rs", "b.rs", true),
            ("**/*.rs", "a/b/c.rs", true),
            ("src/**", "src/a/b", true),
            ("src/**/x", "src/x", true),
            ("src/**/x", "src/a/b/x", true),
            ("src/**/x", "srcx", false),
            ("**/a/**/b", "a/x/a/b", true),
            ("a**b", "axxb", true),
            ("a**b", "ax/xb", false),
            ("?.c", "ü.c", true),
            ("??.c", "ü.c", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[", "[", true),
            ("*.{ts,tsx}", "a.tsx", true),
            ("{a,b/{c,d}}/e", "b/d/e", true),
            ("{a", "{a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*a*a*b", "aaaaab", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn hostile_patterns_are_answered_in_time_or_refused() {
        let pattern = "*a".repeat(1000) + "b";
        let path = "a".repeat(4000);
        assert!(!matches(&pattern, &path));
        let names = "a/".repeat(2000);
        assert!(!matches(&("**/a/".repeat(500) + "b"), &names));
        assert!(GlobPattern::new("{a,b}".repeat(20).as_bytes()).is_none());
        assert!(GlobPattern::new(&vec![b'*'; 5000]).is_none());
    }

    #[test]
    fn random_patterns_never_panic() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let letters = b"*?[]!-{},\\/ab\xc3\xbc";
        let mut random = |most: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % most
        };
        for _ in 0..100_000 {
            let pattern: Vec<u8> =
                (0..random(12)).map(|_| letters[random(letters.len() as u64) as usize]).collect();
            let path: Vec<u8> =
                (0..random(12)).map(|_| letters[random(letters.len() as u64) as usize]).collect();
            if let Some(pattern) = GlobPattern::new(&pattern) {
                pattern.matches(&path);
            }
        }
    }
}
