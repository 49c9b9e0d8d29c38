//! JSON as text: written in the order of our choosing, read in one pass, passed on as it came.
//!
//! A record is never parsed into values and written again: that would lose the order of keys and the
//! digits of numbers. A valid document has no raw line end inside a string, so it becomes one line by dropping
//! the white space outside them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The members of an object, each as the text it was written in.
#[derive(Debug)]
pub enum Fields<'a> {
    /// Their names stand in the text as they are, and nothing is copied: so it is with all that we write.
    Plain(BTreeMap<&'a str, &'a RawValue>),
    /// At least one name is written with an escape.
    Escaped(BTreeMap<String, &'a RawValue>),
}

impl<'a> Fields<'a> {
    /// A member.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        match self {
            Fields::Plain(members) => members.get(name).copied(),
            Fields::Escaped(members) => members.get(name).copied(),
        }
    }

    /// The names.
    pub fn names(&self) -> Vec<String> {
        match self {
            Fields::Plain(members) => members.keys().map(|&name| name.to_owned()).collect(),
            Fields::Escaped(members) => members.keys().cloned().collect(),
        }
    }
}

/// Checks that `text` is exactly one JSON object, and gives its members. Nesting may be of any depth.
pub fn fields(text: &str) -> Result<Fields<'_>, String> {
    serde_json::from_str(text)
        .map(Fields::Plain)
        .or_else(|_| serde_json::from_str(text).map(Fields::Escaped))
        .map_err(|e| e.to_string())
}

/// How many members an object has, a key that is given twice counted twice.
pub fn members(object: &str) -> usize {
    let (mut quoted, mut escaped, mut depth, mut colons) = (false, false, 0, 0);
    for b in object.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b':' if depth == 1 => colons += 1,
            _ => {}
        }
    }
    colons
}

/// The value of a member as text, where it is a string.
pub fn text(fields: &Fields<'_>, key: &str) -> Option<String> {
    // What begins otherwise is none. To make an error of it, serde_json would look for the processor's abilities, and
    // in a virtual machine each question stops the machine.
    Some(fields.get(key)?.get())
        .filter(|value| value.starts_with('"'))
        .and_then(|value| serde_json::from_str(value).ok())
}

/// The value of a member as a whole number.
pub fn whole(fields: &Fields<'_>, key: &str) -> Option<u64> {
    fields.get(key)?.get().parse().ok()
}

/// Checks that `bytes` are exactly one JSON document, an object or an array, in UTF-8 without a byte order mark.
/// A bare number or word is refused: it is what stray output looks like, not what an answer looks like.
pub fn document(bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    if text.trim_ascii().is_empty() {
        return Err("it is empty".to_owned());
    }
    serde_json::from_str::<&RawValue>(text).map_err(|e| format!("it is not one JSON document: {e}"))?;
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{' | b'[') => Ok(text.trim_ascii()),
        _ => Err("it is neither an object nor an array".to_owned()),
    }
}

/// A valid document on one line.
pub fn one_line(text: &str) -> Cow<'_, str> {
    if ![b'\n', b'\r'].iter().any(|end| text.as_bytes().contains(end)) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len());
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        if quoted || !c.is_ascii_whitespace() {
            line.push(c);
        }
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = quoted,
            '"' => quoted = !quoted,
            _ => {}
        }
    }
    Cow::Owned(line)
}

/// An object in the making.
#[derive(Default)]
pub struct Object(String);

impl Object {
    /// An empty one.
    pub fn new() -> Object {
        Object(String::from("{"))
    }

    /// One to which `text`, a valid object on one line, lends its members.
    pub fn extending(text: &str) -> Object {
        let text = text.trim_ascii();
        Object(text.strip_suffix('}').unwrap_or(text).trim_ascii_end().to_owned())
    }

    /// Adds a member whose value is JSON already.
    pub fn raw(mut self, key: &str, value: &str) -> Object {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&reap::exit::quoted(key));
        self.0.push(':');
        self.0.push_str(value);
        self
    }

    /// Adds a string.
    pub fn text(self, key: &str, value: &str) -> Object {
        let value = reap::exit::quoted(value);
        self.raw(key, &value)
    }

    /// Adds a string or null.
    pub fn maybe_text(self, key: &str, value: Option<&str>) -> Object {
        match value {
            Some(value) => self.text(key, value),
            None => self.raw(key, "null"),
        }
    }

    /// Adds a number, a boolean, or null.
    pub fn value(self, key: &str, value: Option<impl ToString>) -> Object {
        match value {
            Some(value) => self.raw(key, &value.to_string()),
            None => self.raw(key, "null"),
        }
    }

    /// The finished text.
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// An array of strings.
pub fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = values.into_iter().map(reap::exit::quoted).collect();
    format!("[{}]", quoted.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_its_order_and_digits_on_the_way_to_one_line() {
        let pretty =
            "{\n  \"z\" : 1.50e+3,\r\n\t\"a\": [ 12345678901234567890, \"x \\\" \\\\\" ],\n \"u\":\"a\u{2028}b\"}\n";
        assert_eq!(
            one_line(pretty),
            "{\"z\":1.50e+3,\"a\":[12345678901234567890,\"x \\\" \\\\\"],\"u\":\"a\u{2028}b\"}"
        );
        assert_eq!(one_line("{ \"a\" : 1 }"), "{ \"a\" : 1 }");
    }

    #[test]
    fn an_object_grows_at_its_end() {
        assert_eq!(Object::extending("{\"a\":{}}").value("n", Some(3)).end(), "{\"a\":{},\"n\":3}");
        assert_eq!(Object::extending("{}").text("k", "v").end(), "{\"k\":\"v\"}");
        assert_eq!(Object::new().maybe_text("k", None).end(), "{\"k\":null}");
    }

    #[test]
    fn members_are_counted_at_the_top_alone() {
        assert_eq!(members("{}"), 0);
        assert_eq!(members("{\"a\":{\"b\":1,\"c\":[{\"d\":2}]},\"a:\\\":\":\"x:y\"}"), 2);
    }

    #[test]
    fn a_document_is_one_object_or_array() {
        for good in ["{}", " [1]\n", "{\"a\":-0.0e-7}", &format!("{}{}", "[".repeat(5000), "]".repeat(5000))] {
            assert!(document(good.as_bytes()).is_ok(), "{good:.20}");
        }
        for bad in [
            "",
            " \n",
            "42",
            "\"text\"",
            "null",
            "{} {}",
            "{}x",
            "NaN",
            "[NaN]",
            "\u{feff}{}",
            "warning\n{}",
            "{'a':1}",
            "{\"a\":1,}",
            "[1",
        ] {
            assert!(document(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(document(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn a_member_of_another_type_is_no_answer() {
        let fields = fields("{\"t\":1,\"n\":\"x\",\"w\":-1,\"f\":1.5}").unwrap();
        assert_eq!(text(&fields, "t"), None);
        assert_eq!(whole(&fields, "w"), None);
    }
}
