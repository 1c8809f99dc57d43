"""The Rust that each feature of a crate needs: what its dependencies declare, and what its description says.

Arguments: the manifest of a workspace to resolve, and the manifest with the descriptions (`## …` above each feature).
Exits with 1 where a description is not what the dependencies declare.
"""

import json
import re
import subprocess
import sys

resolved, described = sys.argv[1:]


def cargo(*arguments):
    command = ["cargo", *arguments, "--manifest-path", resolved]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def version(text):
    return tuple(int(part) for part in text.split(".")[:2])


text = open(described).read()
crate = re.search(r'^name = "(.+)"', text, re.M)[1]
base = version(re.search(r'^rust-version = "([\d.]+)"', text, re.M)[1])
features = re.findall(r"^## (.*)\n([a-z0-9-]+) = ", text, re.M)
metadata = json.loads(cargo("metadata", "--quiet", "--format-version", "1", "--all-features"))
declared = {(package["name"], package["version"]): package["rust_version"] for package in metadata["packages"]}

wrong = 0
default = "default" if re.search("^default = ", text, re.M) else ""
for said, feature in [("", default), *features]:
    tree = cargo(
        "tree", "--quiet", "-p", crate, "--no-default-features", "--features", feature, "--target", "all",
        "--edges", "normal,build", "--prefix", "none", "--format", "{p}",
    )  # fmt: skip
    needed = base
    by = crate
    for line in tree.splitlines():
        name, at = line.split()[:2]
        rust = declared.get((name, at.removeprefix("v")))
        if rust and version(rust) > needed:
            needed, by = version(rust), name
    found = re.search(r"Needs Rust ([\d.]+)", said)
    says = version(found[1]) if found else base
    if says != needed:
        wrong += 1
        print(f"the feature {feature} needs Rust {'.'.join(map(str, needed))} by {by}; its description says "
              f"{found[0] if found else 'nothing of it'}")  # fmt: skip
    elif needed != base:
        print(f"{feature}: Rust {'.'.join(map(str, needed))}, by {by}")
print(f"{crate}, all others: Rust {'.'.join(map(str, base))}")
sys.exit(wrong > 0)
