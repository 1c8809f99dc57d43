//! Scripts of clients in other languages: of npm on Node.js, and in Python.

use crate::Worker;
use crate::builder::find;
use crate::edition::in_workspace;
use crate::worker::WorkerBuilder;

const VARIABLE: &str = "IDEM_NODE";
/// The Node.js of `scripts/test tools`, below the workspace's root. It is fetched where the system's is too old.
const FETCHED: &str = "target/servers/node-24.19.0/bin/node";
/// Directory of the packages of `npm/package-lock.json`, below the workspace's root. `scripts/test tools` installs
/// them.
const PACKAGES: &str = "target/servers/npm/node_modules";

/// A script in a process of Node.js with the packages of `npm/package.json`. The panic without them names the remedy.
pub(crate) fn node(script: &str) -> WorkerBuilder {
    let advice = || {
        format!(
            "no Node.js 20 or newer; run `bash scripts/test tools`, or set {VARIABLE} to the path of one"
        )
    };
    let places = in_workspace(FETCHED).chain(["node".into()]);
    let node = find(VARIABLE, places, advice);
    let node = node.unwrap_or_else(|error| panic!("{error}"));
    let packages = in_workspace(PACKAGES).find(|place| place.is_dir());
    let packages = packages.unwrap_or_else(|| {
        panic!("no clients of npm at `{PACKAGES}` of the workspace; run `bash scripts/test tools`")
    });
    Worker::program(node)
        .env("NODE_PATH", packages)
        .args(["-e", script, "--"])
}

/// A script in an isolated Python with a package. It has neither the user's packages nor those of the working directory.
///
/// `variable` names another Python. The panic without one names the remedy.
pub(crate) fn python(variable: &str, package: &str, version: &str, script: &str) -> WorkerBuilder {
    let place = format!("target/servers/{package}-{version}/bin/python");
    let python = find(variable, in_workspace(&place), || {
        format!(
            "no Python at `{place}` of the workspace; run `bash scripts/test tools`, or set {variable} to the path of \
             a Python 3 that has the package `{package}` {version}"
        )
    });
    let python = python.unwrap_or_else(|error| panic!("{error}"));
    Worker::program(python).args(["-I", "-c", script])
}
