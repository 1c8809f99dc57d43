//! A package of examples that keep their records in memory.
