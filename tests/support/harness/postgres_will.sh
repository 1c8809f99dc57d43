# What becomes of a Postgres whose tests died: run by its watchdog (child.rs), before it kills the server.
# In: $pid, the server, which stands still; $1, its directory, or nothing if that is to be kept.
# A server with a process for each connection: one that is busy or stopped would not see the server go.
if command -v ps >/dev/null; then
    children=$(ps -A -o pid= -o ppid= | while read -r child parent; do
        if [ "$parent" = "$pid" ]; then echo "$child"; fi
    done)
else
    children=$(cat "/proc/$pid/task/$pid/children")
fi
if [ -n "$children" ]; then kill -9 $children; fi
# Shared memory, which nobody else would remove (as `tidy` in postgres.rs).
if [ -n "$1" ]; then
    memory=$(sed -n 7p "$1/data/postmaster.pid")
    ipcrm -m "${memory##* }"
fi
