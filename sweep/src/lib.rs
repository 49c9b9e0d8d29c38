//! Turn finished, failed and lost jobs into JSON lines, delivered at least once.
