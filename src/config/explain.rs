//! Every field with its meaning and its default, as a config file that can be edited and used.

use std::fmt::Write;

use super::schema::{Example, Field, Kind, Presence, TABLES, Table};

/// The explanation, as TOML. It parses as the config that results when only what has no default is
/// given.
pub fn explain() -> String {
    let mut text = String::new();
    comment(
        &mut text,
        "Every field of a ringgate config file. \"Default\" fields may be left out and then have the value shown here, \
         \"Optional\" ones mean something else when absent, and the values of \"Required\" ones are examples.",
    );
    for table in TABLES {
        for (index, example) in table.examples.iter().enumerate() {
            text.push('\n');
            if index == 0 {
                comment(&mut text, table.meaning);
            } else {
                comment(&mut text, &format!("Fields of {} {}s only.", example.variant, table.name));
            }
            one(&mut text, table, example);
        }
    }
    text
}

fn one(text: &mut String, table: &Table, example: &Example) {
    let (open, close) = if table.repeated { ("[[", "]]") } else { ("[", "]") };
    put(text, format_args!("{open}{}{close}", table.name));
    for field in table.fields.iter().filter(|field| field.applies_to(example.variant)) {
        let given = example.values.iter().find(|(name, _)| *name == field.name);
        match given {
            Some((_, value)) if !example.shared && field.only.is_none() => {
                put(text, format_args!("{} = {value}", field.name));
            }
            _ if example.shared || field.only.is_some() => match &field.kind {
                // TOML wants them behind all other fields, and that is where the description has
                // them.
                Kind::Table(inner) => explain_inner(text, inner),
                _ => explain_field(text, field, given.map(|(_, value)| *value)),
            },
            _ => {}
        }
    }
}

/// A table inside of the one before it, which may be left out.
fn explain_inner(text: &mut String, table: &Table) {
    text.push('\n');
    comment(text, table.meaning);
    put(text, format_args!("[{}]", table.name));
    table.fields.iter().for_each(|field| explain_field(text, field, None));
}

fn explain_field(text: &mut String, field: &Field, given: Option<&str>) {
    let (presence, value, off) = match (&field.presence, given) {
        (Presence::Default(value), _) => ("Default", *value, ""),
        (Presence::Optional(_), Some(value)) => ("Optional", value, ""),
        (Presence::Optional(value), None) => ("Optional", *value, "# "),
        (Presence::Required, value) => {
            ("Required", value.expect("examples give every required field"), "")
        }
    };
    text.push('\n');
    comment(text, field.meaning);
    comment(text, &format!("{presence}: {}", field.kind));
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
