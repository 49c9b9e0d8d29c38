//! A child that works in our memory until it execs or ends, while we stand still: vfork(2), on a stack of its own.
//!
//! Nothing of ours is copied for a child that is about to become something else. The stack makes it safe where
//! vfork itself is not: the child returns into no frame of the parent. Where there is no clone(2), it is a fork.

use nix::unistd::Pid;

/// Enough for a few frames and system calls; execve(2) takes its arguments from where they are.
const SIZE: usize = 64 << 10;

/// A stack for one child, made before the first fork.
pub struct Stack {
    #[cfg_attr(not(all(target_os = "linux", not(portable))), allow(dead_code))]
    top: *mut u128,
    // Only held: never touched by us, so that only the pages that the child uses come into being.
    _memory: Vec<u128>,
}

impl Stack {
    /// An empty one, aligned to 16 bytes.
    pub fn new() -> Stack {
        let mut memory = Vec::with_capacity(SIZE / size_of::<u128>());
        let top = memory.spare_capacity_mut().as_mut_ptr_range().end.cast();
        Stack { top, _memory: memory }
    }
}

/// A life that ends in an exec or an exit.
type Life<'a> = &'a dyn Fn();

/// Runs `life` in a child, and returns once the child has become another program or has ended.
///
/// `life` may make system calls only. All signals should be blocked, so that none is handled in the child.
#[cfg(all(target_os = "linux", not(portable)))]
pub fn run(stack: &Stack, life: Life<'_>) -> nix::Result<Pid> {
    use nix::errno::Errno;
    use std::ffi::{c_int, c_void};

    extern "C" fn begin(life: *mut c_void) -> c_int {
        // SAFETY: `run` passes a pointer to its `life`, and stands still as long as it is used.
        unsafe { (*life.cast::<Life<'_>>())() };
        0
    }
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is aligned and nobody else's, and outlives the child's use of it: with CLONE_VFORK
    // clone(2) returns only when the child has left our memory.
    let pid = unsafe { libc::clone(begin, stack.top.cast(), flags, (&raw const life).cast_mut().cast()) };
    Errno::result(pid).map(Pid::from_raw)
}

/// The same with a copy of our memory, and without standing still.
#[cfg(not(all(target_os = "linux", not(portable))))]
pub fn run(_: &Stack, life: Life<'_>) -> nix::Result<Pid> {
    use nix::unistd::{ForkResult, fork};
    // SAFETY: this process has one thread, so the child may use whatever the parent had.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            life();
            // SAFETY: ends this process without running what belongs to the parent.
            unsafe { libc::_exit(0) }
        }
    }
}
