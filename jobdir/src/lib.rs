//! Claim a job's directory, and read and write what is in it.
