//! Claims a job: builds its directory under a hidden name, then renames it into place. Nobody ever sees half a job,
//! and the rename fails where the id is taken.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

use fs2::FileExt;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::linkat;
use reap::exit::{Fail, Status};
use reap::here;

use crate::files;
use crate::id;
use crate::job::Job;
use crate::json::{self, Object};
use crate::meta::{Meta, Origin};
use crate::root::{Root, remove_job, rename_exclusive, rename_new};
use crate::settle::{self, State};
use crate::windows::Windows;
use crate::word::Word;

/// What a caller wants claimed.
pub struct Order<'a> {
    /// The caller's correlation id; `None`: one is minted.
    pub id: Option<String>,
    /// What the caller calls this kind of job.
    pub name: Option<String>,
    /// The caller's members: an object on one line.
    pub meta: String,
    /// All windows.
    pub windows: Windows,
    /// The request, to be stored before the claim returns.
    pub input: Option<(&'a mut dyn Read, &'a Path)>,
}

/// How a claim ends.
#[derive(Debug)]
pub enum Claimed {
    /// It is ours.
    Ours(Job),
    /// The id is another job's, which stands like this.
    Taken(Job, State),
}

/// Claims a job. Any error is a lost claim, and leaves nothing behind.
pub fn claim(root: &Root, order: Order<'_>) -> Result<Claimed, Fail> {
    let cannot = |e: io::Error| Fail::cannot("claim a job in", root.path.display(), &e);
    let (hidden, dir) = make(root).map_err(cannot)?;
    let claimed = build(root, &hidden, dir, order);
    if !matches!(claimed, Ok(Claimed::Ours(_))) {
        // What stood in the way of the claim says more than what stands in the way of cleaning up; prune finds the rest.
        let _ = files::remove_tree(root.jobs.as_fd(), hidden.as_str());
    }
    claimed
}

/// Makes the hidden directory, locked: the lock tells prune that somebody is at work here. A prune that came
/// between the two has removed it, and then another one is made.
fn make(root: &Root) -> io::Result<(String, File)> {
    loop {
        let hidden = files::hidden(files::CLAIMING)?;
        mkdirat(&root.jobs, hidden.as_str(), Mode::from_bits_truncate(0o755))?;
        let dir = match files::open_dir(root.jobs.as_fd(), hidden.as_str()) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            dir => File::from(dir?),
        };
        let locked = FileExt::try_lock_exclusive(&dir);
        let contended = locked.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
        if !contended && files::look(root.jobs.as_fd(), &hidden)?.is_some() {
            return Ok((hidden, dir));
        }
    }
}

fn build(root: &Root, hidden: &str, dir: File, mut order: Order<'_>) -> Result<Claimed, Fail> {
    let cannot = |e: io::Error| Fail::cannot("claim a job in", root.path.display(), &e);
    if let Some((from, path)) = order.input.take() {
        store(&dir.as_fd(), from).map_err(|e| Fail::cannot("store input", path.display(), &e))?;
    }
    // None of these has to survive a power cut: without a word a job is what its other files say.
    let status = format!("{}\n", Word::Claimed);
    for (name, text) in [(files::PID, ""), (files::LOG, ""), (files::STATUS, status.as_str())] {
        files::create(dir.as_fd(), name, text.as_bytes()).map_err(cannot)?;
    }
    let meta = Meta {
        claim: id::random(16).map_err(cannot)?,
        name: order.name,
        windows: order.windows,
        origin: Origin::here().map_err(cannot)?,
        claimed_at: here::wall(),
        claimed_monotonic: here::monotonic(),
        meta: order.meta,
    };
    let mut id = order.id.clone().map_or_else(id::mint, Ok).map_err(cannot)?;
    // meta.json names the job, so a minted id that is taken is written anew.
    loop {
        let text = meta.to_json(&id);
        if text.len() as u64 > files::SMALL {
            return Err(Fail::new(
                Status::Usage,
                format!("cannot claim a job: its meta is larger than {} bytes", files::SMALL),
            ));
        }
        files::remove(dir.as_fd(), files::META).map_err(cannot)?;
        files::create(dir.as_fd(), files::META, text.as_bytes()).and_then(files::sync).map_err(cannot)?;
        files::sync(&dir).map_err(cannot)?;
        match place(root, hidden, &id).map_err(cannot)? {
            None => break,
            Some(job) if order.id.is_some() => {
                let state = settle::settle_one(&job);
                // One that was pruned since has left the id to us.
                if root.holds(&job).map_err(cannot)? {
                    return Ok(Claimed::Taken(job, state));
                }
            }
            Some(_) => id = id::mint().map_err(cannot)?,
        }
    }
    let path = root.path.join(files::JOBS).join(&id);
    let _ = FileExt::unlock(&dir);
    let job = Job { id, dir: dir.into(), path, delivered: false };
    // An id that was told to nobody must not be found to be taken.
    files::sync(&root.jobs).map_err(|e| {
        let _ = withdraw(root, &job);
        cannot(e)
    })?;
    Ok(Claimed::Ours(job))
}

/// Renames the finished directory into place; gives the job that has the id already. The lock on delivered/
/// keeps an acknowledgement from moving that job between the two looks.
fn place(root: &Root, hidden: &str, id: &str) -> io::Result<Option<Job>> {
    let delivered = File::from(root.delivered_made().map_err(|fail| io::Error::other(fail.text))?);
    FileExt::lock_shared(&delivered)?;
    let foreign = || io::Error::other(format!("'{id}' is the name of something that is no job"));
    let ours = |job: Job| if job.is_foreign() { Err(foreign()) } else { Ok(Some(job)) };
    if let Some(job) = root.archived(delivered.as_fd(), id)? {
        return ours(job);
    }
    match rename_exclusive(root.jobs.as_fd(), hidden, root.jobs.as_fd(), id) {
        Ok(()) => return Ok(None),
        Err(e) if files::is_unsupported(e) => {
            links_or_refuse(root, hidden)?;
            match rename_new(root.jobs.as_fd(), hidden, root.jobs.as_fd(), id) {
                Ok(()) => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::EEXIST) => {}
        Err(e) => return Err(e.into()),
    }
    root.pending(id)?.map_or_else(|| Err(foreign()), ours)
}

/// Without a rename that refuses to replace, a record can only be committed by link(2).
fn links_or_refuse(root: &Root, hidden: &str) -> io::Result<()> {
    let (file, probe) = (format!("{hidden}/{}", files::STATUS), format!("{hidden}/{}probe", files::MAKING));
    linkat(&root.jobs, file.as_str(), &root.jobs, probe.as_str(), AtFlags::empty())
        .map_err(|_| io::Error::other("its file system has neither links nor a rename that refuses to replace"))?;
    files::remove(root.jobs.as_fd(), probe.as_str())
}

fn store(dir: &impl AsFd, from: &mut dyn Read) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    let mut file = File::from(files::open(dir.as_fd(), files::INPUT, flags)?);
    io::copy(from, &mut file)?;
    files::sync(&file)
}

/// Takes back a claim whose id never reached the caller.
pub fn withdraw(root: &Root, job: &Job) -> io::Result<()> {
    let delivered = root.delivered_made().map_err(|fail| io::Error::other(fail.text))?;
    remove_job(job, root.jobs.as_fd(), delivered.as_fd()).map(drop)
}

/// The `meta` of a claim: the members of a file, and `K=V` pairs, whose values are strings. A key given
/// twice is refused.
pub fn meta_of(file: Option<&str>, pairs: &[(String, String)]) -> Result<String, String> {
    let line = json::one_line(file.unwrap_or("{}").trim_ascii()).into_owned();
    let mut keys = json::fields(&line)?.names();
    if keys.len() != json::members(&line) {
        return Err("the file gives a key twice".to_owned());
    }
    let mut object = Object::extending(&line);
    for (key, value) in pairs {
        if keys.contains(key) {
            return Err(format!("'{key}' is given twice"));
        }
        keys.push(key.clone());
        object = object.text(key, value);
    }
    Ok(object.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_keeps_the_files_digits_and_adds_the_pairs() {
        let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        assert_eq!(meta_of(None, &[]).unwrap(), "{}");
        assert_eq!(
            meta_of(Some("{\n \"n\": 1.50\n}\n"), &[pair("b", "x\"y"), pair("", "")]).unwrap(),
            "{\"n\":1.50,\"b\":\"x\\\"y\",\"\":\"\"}"
        );
        assert_eq!(meta_of(Some("{ }"), &[pair("a", "1")]).unwrap(), "{\"a\":\"1\"}");
        assert_eq!(meta_of(Some("{\"a\":{}}"), &[]).unwrap(), "{\"a\":{}}");
        assert!(meta_of(Some("[]"), &[]).is_err());
        assert!(meta_of(Some("{\"a\":1}"), &[pair("a", "2")]).is_err());
        assert!(meta_of(None, &[pair("a", "1"), pair("a", "1")]).is_err());
    }
}
