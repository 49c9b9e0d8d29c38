//! End whole process trees, deepest first, and name what survived.
