#!/bin/sh
# rustdoc of a stable toolchain, with JSON as its output. Its environment alone has the variable that permits this:
# build scripts of dependencies read it as well, and cargo would build them again.
RUSTC_BOOTSTRAP=1 exec rustdoc "$@" -Z unstable-options --output-format json
