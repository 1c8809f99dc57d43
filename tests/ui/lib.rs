//! A separate package, whose cases are built without the other tests' stores and servers.
