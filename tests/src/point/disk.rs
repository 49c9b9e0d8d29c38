//! A file system that can lose its power: an image of its own, mounted over a loop device.
//!
//! - The mount is made in a mount namespace that one process has for itself, and goes with it, however that ends.
//! - A cut is what `xfs_io -x -c shutdown` does: what is not on the disk at that moment never gets there. With `-f` the
//!   log is written first: a file that was renamed has its new name then, and perhaps nothing in it.
//! - A boot mounts the image again, which replays the log, and covers the kernel's boot id with another one.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use nix::errno::Errno;
use tempfile::TempDir;

use crate::until;

/// The file systems, each with the size of its image: XFS takes nothing smaller.
const SIZES: [(&str, u64); 2] = [("ext4", 32 << 20), ("xfs", 300 << 20)];

/// `_IOR('X', 125, u32)`: XFS_IOC_GOINGDOWN and EXT4_IOC_SHUTDOWN.
const SHUTDOWN: libc::Ioctl = 0x8004_587d;

/// XFS_FSOP_GOING_FLAGS_LOGFLUSH and XFS_FSOP_GOING_FLAGS_NOLOGFLUSH.
const LOG_FLUSH: u32 = 1;
const NO_LOG_FLUSH: u32 = 2;

/// Where the kernel tells its boot id.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Runs a command that must succeed; otherwise the first line of its complaint.
fn must(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    let ran = command.output().map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    let first = said.lines().find(|line| !line.is_empty()).unwrap_or("it failed");
    if ran.status.success() { Ok(()) } else { Err(format!("{program}: {}", first.trim())) }
}

/// A folder with a fresh image in it, and the place where it is to be mounted: `mnt`.
///
/// # Errors
/// Where there is no such mkfs(8).
pub fn make(kind: &str) -> Result<TempDir, String> {
    let folder = tempfile::Builder::new().prefix("outlive-disk.").tempdir().map_err(|e| e.to_string())?;
    let image = folder.path().join("image");
    let size = SIZES.iter().find(|size| size.0 == kind).map_or(0, |size| size.1);
    let made = File::create(&image).and_then(|file| file.set_len(size));
    made.and_then(|()| fs::create_dir(folder.path().join("mnt"))).map_err(|e| e.to_string())?;
    must(Command::new(format!("mkfs.{kind}")).arg("-q").arg(image))?;
    Ok(folder)
}

/// Whether power can be cut here at all.
///
/// # Errors
/// The reason why not: no root, no loop devices, no such file system.
pub fn probe(kind: &str) -> Result<(), String> {
    let folder = make(kind)?;
    let path = |name| folder.path().join(name);
    must(Command::new("unshare").args(["--mount", "mount", "-o", "loop"]).arg(path("image")).arg(path("mnt")))
}

/// A mounted one.
pub struct Disk {
    folder: PathBuf,
    boots: Cell<u32>,
}

impl Disk {
    /// Mounts the image of a folder that was made; this process must have a mount namespace of its own.
    ///
    /// # Errors
    /// What mount(8) says.
    pub fn mount(folder: PathBuf) -> Result<Disk, String> {
        let disk = Disk { folder, boots: Cell::new(0) };
        disk.start()?;
        must(Command::new("mount").arg("--bind").arg(disk.folder.join("boot_id")).arg(BOOT_ID))?;
        Ok(disk)
    }

    fn start(&self) -> Result<(), String> {
        self.boots.set(self.boots.get() + 1);
        let id = format!("00000000-0000-4000-8000-{:012}\n", self.boots.get());
        fs::write(self.folder.join("boot_id"), id).map_err(|e| e.to_string())?;
        let [image, mnt] = ["image", "mnt"].map(|name| self.folder.join(name));
        must(Command::new("mount").args(["-o", "loop"]).arg(image).arg(mnt))
    }

    fn open(&self) -> File {
        File::open(self.folder.join("mnt")).expect("the mount point")
    }

    /// Writes down all that there is: what a scenario has made ready, it had made long ago.
    pub fn sync(&self) {
        nix::unistd::syncfs(self.open()).expect("syncfs");
    }

    /// The power fails, after the log is written or not.
    pub fn cut(&self, log: bool) {
        let mnt = self.open();
        let how = if log { LOG_FLUSH } else { NO_LOG_FLUSH };
        // SAFETY: this request reads one u32, and it is ours.
        let cut = Errno::result(unsafe { libc::ioctl(mnt.as_raw_fd(), SHUTDOWN, &how) });
        cut.map_err(io::Error::from).expect("a shutdown of the file system");
    }

    /// The power comes back. Nobody may have a file of it open any more.
    pub fn boot(&self) {
        let mnt = self.folder.join("mnt");
        until("the disk is let go", || must(Command::new("umount").arg(&mnt)).is_ok());
        self.start().expect("a file system that mounts again");
    }
}
