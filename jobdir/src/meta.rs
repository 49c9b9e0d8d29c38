//! meta.json: who the job is, what it may use, where and when it was claimed. Written once.

use std::io;
use std::time::Duration;

use reap::{duration, here};

use crate::json::{self, Object};
use crate::moment;
use crate::windows::Windows;

/// What meta.json holds.
#[derive(Clone, Debug)]
pub struct Meta {
    /// The random token of this claim.
    pub claim: String,
    /// What the caller calls this kind of job.
    pub name: Option<String>,
    /// All windows.
    pub windows: Windows,
    /// The machine that claimed it.
    pub origin: Origin,
    /// When, by the wall clock.
    pub claimed_at: Duration,
    /// When, on the monotonic clock of the boot in `origin`.
    pub claimed_monotonic: Duration,
    /// The caller's own members: an object on one line.
    pub meta: String,
}

/// A machine, and one boot of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Host name.
    pub host: String,
    /// machine-id(5), where there is one.
    pub machine_id: Option<String>,
    /// This boot's id.
    pub boot_id: Option<String>,
    /// The pid namespace (namespaces(7)), inside which numbers mean the same.
    pub pid_namespace: Option<u64>,
}

/// How another machine relates to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The same kernel, without a reboot since.
    SameBoot,
    /// This machine before its last boot: nothing of then lives.
    EarlierBoot,
    /// This machine, and it cannot be told which boot of it: a lock here tells who lives, and a number means nothing.
    SomeBoot,
    /// Another machine: nothing of it can be judged from here.
    Elsewhere,
}

impl Origin {
    /// This machine, now. What cannot be read just now is an error: left out of a file, it would make the job another
    /// machine's for ever, and left out of a comparison, it would make every job another machine's.
    pub fn here() -> io::Result<Origin> {
        Ok(Origin {
            host: here::host(),
            machine_id: here::machine_id()?,
            boot_id: Some(here::boot_id()?),
            pid_namespace: here::pid_namespace()?,
        })
    }

    /// How `self`, read from a file, relates to `here`. The boot id decides; the machine id (where both
    /// have one) or the host name tells another boot from another machine.
    pub fn seen_from(&self, here: &Origin) -> Relation {
        if self.boot_id == here.boot_id && here.boot_id.as_deref().is_some_and(here::is_random) {
            return Relation::SameBoot;
        }
        let same = match (&self.machine_id, &here.machine_id) {
            (Some(theirs), Some(ours)) => theirs == ours,
            _ => self.host == here.host,
        };
        let ids = self.boot_id.as_ref().zip(here.boot_id.as_ref());
        match ids.and_then(|(theirs, ours)| here::is_same_boot(theirs, ours)) {
            _ if !same => Relation::Elsewhere,
            Some(true) => Relation::SameBoot,
            Some(false) => Relation::EarlierBoot,
            None => Relation::SomeBoot,
        }
    }

    /// Adds its members to an object.
    pub fn write(&self, object: Object) -> Object {
        object
            .text("host", &self.host)
            .maybe_text("machine_id", self.machine_id.as_deref())
            .maybe_text("boot_id", self.boot_id.as_deref())
            .value("pid_namespace", self.pid_namespace)
    }

    /// Reads its members.
    pub fn read(fields: &json::Fields<'_>) -> Option<Origin> {
        Some(Origin {
            host: json::text(fields, "host")?,
            machine_id: json::text(fields, "machine_id"),
            boot_id: json::text(fields, "boot_id"),
            pid_namespace: json::whole(fields, "pid_namespace"),
        })
    }
}

impl Meta {
    /// The file's text.
    pub fn to_json(&self, id: &str) -> String {
        let object = Object::new()
            .value("version", Some(1))
            .text("job", id)
            .text("claim", &self.claim)
            .maybe_text("name", self.name.as_deref())
            .raw("limits", &self.windows.to_json());
        let object = self
            .origin
            .write(object)
            .text("claimed_at", &moment::rfc3339(self.claimed_at))
            .value("claimed_monotonic_s", Some(duration::seconds(self.claimed_monotonic)))
            .raw("meta", &self.meta);
        object.end() + "\n"
    }

    /// Reads the file of job `id`; the error says what is wrong with it.
    pub fn read(text: &[u8], id: &str) -> Result<Meta, String> {
        let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8")?;
        let fields = json::fields(text)?;
        let missing = |what: &str| format!("it has no valid {what}");
        if json::text(&fields, "job").as_deref() != Some(id) {
            return Err("it belongs to another job".to_owned());
        }
        let limits = fields.get("limits").ok_or_else(|| missing("limits"))?;
        Ok(Meta {
            claim: json::text(&fields, "claim").filter(|c| !c.is_empty()).ok_or_else(|| missing("claim"))?,
            name: json::text(&fields, "name"),
            windows: Windows::read(&json::fields(limits.get())?).ok_or_else(|| missing("limits"))?,
            origin: Origin::read(&fields).ok_or_else(|| missing("host"))?,
            claimed_at: json::text(&fields, "claimed_at")
                .and_then(|t| moment::parse(&t))
                .ok_or_else(|| missing("claimed_at"))?,
            claimed_monotonic: fields
                .get("claimed_monotonic_s")
                .and_then(|n| duration::read(n.get()).ok())
                .unwrap_or_default(),
            meta: fields
                .get("meta")
                .map(|m| json::one_line(m.get()).into_owned())
                .filter(|m| m.starts_with('{'))
                .unwrap_or_else(|| "{}".to_owned()),
        })
    }

    /// How long ago it was claimed, on the clock that does not step where that can be known.
    pub fn age(&self, relation: Relation) -> Duration {
        match relation {
            Relation::SameBoot => here::monotonic().saturating_sub(self.claimed_monotonic),
            _ => here::wall().saturating_sub(self.claimed_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(host: &str, machine: Option<&str>, boot: Option<&str>) -> Origin {
        Origin {
            host: host.into(),
            machine_id: machine.map(Into::into),
            boot_id: boot.map(Into::into),
            pid_namespace: None,
        }
    }

    #[test]
    fn another_machine_is_told_from_an_earlier_boot() {
        let here = origin("h", Some("m"), Some("b"));
        let cases = [
            (origin("other-container", None, Some("b")), Relation::SameBoot),
            (origin("h", Some("m"), Some("a")), Relation::EarlierBoot),
            (origin("renamed", Some("m"), Some("a")), Relation::EarlierBoot),
            (origin("h", Some("n"), Some("a")), Relation::Elsewhere),
            (origin("h", None, Some("a")), Relation::EarlierBoot),
            (origin("g", None, Some("a")), Relation::Elsewhere),
            (origin("h", Some("m"), None), Relation::SomeBoot),
            (origin("h", Some("m"), Some("at-100")), Relation::SomeBoot),
        ];
        for (there, relation) in cases {
            assert_eq!(there.seen_from(&here), relation, "{there:?}");
        }
        let here = origin("h", Some("m"), Some("at-100"));
        for (host, machine, time, relation) in [
            ("h", "m", "at-101", Relation::SameBoot),
            ("h", "n", "at-100", Relation::Elsewhere),
            ("h", "m", "at-900", Relation::SomeBoot),
            ("h", "m", "b", Relation::SomeBoot),
        ] {
            assert_eq!(origin(host, Some(machine), Some(time)).seen_from(&here), relation, "{machine} {time}");
        }
    }
}
