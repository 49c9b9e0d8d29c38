//! Start a command in a session of its own, and say truthfully whether it started.
fn main() {}
