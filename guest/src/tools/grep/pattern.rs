//! The regular expression of a search.

use regex_automata::meta::{Builder, Config, Regex};
use regex_automata::util::syntax;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::files::sys::invalid;
use crate::task::Stopped;

const LONGEST: usize = 64 * 1024;
/// Of what is built from an expression, in bytes.
const LARGEST: usize = 8 * 1024 * 1024;
/// Of what one thread keeps while it searches, in bytes.
const CACHE: usize = 4 * 1024 * 1024;
const DEEPEST: u32 = 96;

/// How an expression is read.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    pub any_case: bool,
    pub multiline: bool,
    pub fixed: bool,
}

/// Builds the expression. Without `multiline` no match reaches beyond its line. Time to search is linear in
/// what is searched, whatever the expression is.
pub fn build(pattern: &str, reading: Reading) -> Result<Regex, Stopped> {
    if pattern.len() > LONGEST {
        return Err(invalid(format!("The pattern has more than {LONGEST} bytes")));
    }
    let escaped;
    let pattern = if reading.fixed {
        escaped = regex_syntax::escape(pattern);
        &escaped
    } else {
        pattern
    };
    let wrong = |why: String| invalid(format!("The pattern is not a regular expression: {why}"));
    let mut hir = ParserBuilder::new()
        .utf8(false)
        .unicode(true)
        .multi_line(true)
        .dot_matches_new_line(reading.multiline)
        .case_insensitive(reading.any_case)
        .nest_limit(DEEPEST)
        .build()
        .parse(pattern)
        .map_err(|error| wrong(error.to_string()))?;
    if !reading.multiline {
        hir = within_a_line(hir).map_err(|()| {
            wrong("it has a line break, and can match only with \"multiline\": true".to_owned())
        })?;
    }
    Builder::new()
        .configure(
            Config::new()
                .utf8_empty(false)
                .nfa_size_limit(Some(LARGEST))
                .onepass_size_limit(Some(1024 * 1024))
                .hybrid_cache_capacity(CACHE),
        )
        .syntax(syntax::Config::new().utf8(false))
        .build_from_hir(&hir)
        .map_err(|error| {
            wrong(error.size_limit().map_or_else(|| error.to_string(), |_| "it is too large".to_owned()))
        })
}

/// Takes the line break out of every class. `Err` if the expression asks for one.
fn within_a_line(hir: Hir) -> Result<Hir, ()> {
    Ok(match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) if literal.0.contains(&b'\n') => return Err(()),
        HirKind::Literal(literal) => Hir::literal(literal.0),
        HirKind::Class(Class::Unicode(mut class)) => {
            use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
            let only = class.ranges().len() == 1 && class.ranges()[0] == ClassUnicodeRange::new('\n', '\n');
            class.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            if only {
                return Err(());
            }
            Hir::class(Class::Unicode(class))
        }
        HirKind::Class(Class::Bytes(mut class)) => {
            use regex_syntax::hir::{ClassBytes, ClassBytesRange};
            class.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(class))
        }
        HirKind::Look(look) => Hir::look(look),
        HirKind::Repetition(mut repetition) => {
            repetition.sub = Box::new(within_a_line(*repetition.sub)?);
            Hir::repetition(repetition)
        }
        // What a group has captured is not asked for.
        HirKind::Capture(capture) => within_a_line(*capture.sub)?,
        HirKind::Concat(parts) => {
            Hir::concat(parts.into_iter().map(within_a_line).collect::<Result<_, _>>()?)
        }
        HirKind::Alternation(parts) => {
            Hir::alternation(parts.into_iter().map(within_a_line).collect::<Result<_, _>>()?)
        }
    })
}
