//! A separate package: its cases need none of the other tests' servers.
