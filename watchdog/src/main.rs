//! Run a command under an idle limit and a hard limit, and write its one terminal record.
fn main() {}
