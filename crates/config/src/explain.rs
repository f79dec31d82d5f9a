//! Every field with its meaning and its default, as a config file that can be edited and used.

use std::fmt::Write;

use super::host;
use super::schema::{Example, Field, Kind, Presence, TABLES, Table};

/// The explanation, as TOML. It parses as the config that results when only what has no default is
/// given.
pub fn explain() -> String {
    explain_all("a ringgate config file", TABLES)
}

/// The same for the file of a token service. What `[fleet]` has only for gateways has no effect
/// there.
#[cfg(feature = "tokens")]
pub fn explain_tokens() -> String {
    explain_all("a ringgate token service's file", super::tokens::TABLES)
}

/// The same for the file of an agent.
pub fn explain_host() -> String {
    explain_all("a ringgate agent's file", host::TABLES)
}

fn explain_all(file: &str, tables: &[&Table]) -> String {
    let mut text = String::new();
    let head = format!(
        "Every field of {file}. \"Default\" fields may be left out and then have the value shown here, \
         \"Optional\" ones mean something else when absent, and the values of \"Required\" ones are examples."
    );
    comment(&mut text, &head);
    for table in tables {
        for (index, example) in table.examples.iter().enumerate() {
            text.push('\n');
            let Example { variant, .. } = example;
            match table.examples[..index].iter().any(|earlier| earlier.variant == *variant) {
                _ if index == 0 => comment(&mut text, table.meaning),
                false => comment(&mut text, &format!("Fields of {variant} {}s only.", table.name)),
                true => comment(&mut text, &format!("One more {variant} {}.", table.name)),
            }
            one(&mut text, table, index);
        }
    }
    text
}

fn one(text: &mut String, table: &Table, index: usize) {
    let (open, close) = if table.repeated { ("[[", "]]") } else { ("[", "]") };
    put(text, format_args!("{open}{}{close}", table.name));
    let example = &table.examples[index];
    // TOML takes what follows an inner table to belong to it.
    let (inner, plain): (Vec<&Field>, Vec<&Field>) =
        table.fields_of(example.variant).partition(|field| matches!(field.kind, Kind::Table(_)));
    for field in plain {
        let given = example.values.iter().find(|(name, _)| *name == field.name);
        if is_new(field, &table.examples[..=index]) {
            explain_field(text, field, given.map(|(_, value)| *value));
        } else if let Some((_, value)) = given {
            put(text, format_args!("{} = {value}", field.name));
        }
    }
    for field in inner {
        let Kind::Table(inner) = field.kind else { continue };
        explain_inner(text, inner, &table.examples[..=index]);
    }
}

/// Whether the last of these examples is the first that has a field.
fn is_new(field: &Field, examples: &[Example]) -> bool {
    let first = examples.iter().position(|example| field.applies_to(example.variant));
    first.is_some_and(|first| first + 1 == examples.len())
}

/// A table inside of the one before it, which may be left out, as far as it was not explained yet.
fn explain_inner(text: &mut String, table: &Table, examples: &[Example]) {
    let fields: Vec<_> = table.fields().filter(|field| is_new(field, examples)).collect();
    if fields.is_empty() {
        return;
    }
    text.push('\n');
    if examples.len() == 1 {
        comment(text, table.meaning);
    }
    put(text, format_args!("[{}]", table.name));
    for field in fields {
        explain_field(text, field, None);
    }
}

fn explain_field(text: &mut String, field: &Field, given: Option<&str>) {
    let (presence, value, off) = match (&field.presence, given) {
        (Presence::Default(value), _) => ("Default", *value, ""),
        (Presence::Optional(_), Some(value)) => ("Optional, for example", value, ""),
        (Presence::Optional(value), None) => ("Optional, for example", *value, "# "),
        (Presence::Required, value) => {
            ("Required, for example", value.expect("examples give every required field"), "")
        }
    };
    text.push('\n');
    comment(text, field.meaning);
    // What the compiler writes for a declaration's tokens may have several lines.
    let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
    comment(text, &format!("{presence}: {value}"));
    comment(text, &format!("Values: {}", field.kind));
    comment(text, &format!("Changes: {}", field.changes));
    put(text, format_args!("{off}{} = {value}", field.name));
}

/// Comment lines of up to 100 columns.
fn comment(text: &mut String, sentence: &str) {
    const COLUMNS_MAX: usize = 100;
    let mut line = String::from("#");
    for word in sentence.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            put(text, format_args!("{line}"));
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    put(text, format_args!("{line}"));
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}
